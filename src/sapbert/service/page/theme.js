// Light or dark: as the system says, until somebody chooses. No module, and in the head: a page must not
// flash white before it turns dark.
"use strict";
(() => {
  const KEY = "sapbert.theme";
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try {
    chosen = localStorage.getItem(KEY);
  } catch {
    // A browser that keeps nothing still shows the page.
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
        // It holds until the page is closed.
      }
    });
  });
})();
