// Light or dark theme: that of the system, until the user chooses one. Not a module, and loaded in the head, so
// that a dark page does not flash white first.
"use strict";
(() => {
  const KEY = "sapbert.theme";
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try {
    chosen = localStorage.getItem(KEY);
  } catch {
    // Storage is disabled; use the theme of the system.
  }
  const shown = () => chosen ?? (system.matches ? "dark" : "light");
  const apply = () => {
    document.documentElement.dataset.theme = shown();
    const button = document.getElementById("theme");
    const other = shown() === "dark" ? "Light" : "Dark";
    if (!button) return;
    button.textContent = other;
    button.setAttribute("aria-label", `${other} colours`);
  };
  apply();
  system.addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", () => {
    apply();
    document.getElementById("theme").addEventListener("click", () => {
      chosen = shown() === "dark" ? "light" : "dark";
      apply();
      try {
        localStorage.setItem(KEY, chosen);
      } catch {
        // Storage is disabled; the choice lasts until the page is closed.
      }
    });
  });
})();
