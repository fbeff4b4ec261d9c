"use strict";
// Draws one figure per model. A name or concept is highlighted in all figures at once.

const SVG = "http://www.w3.org/2000/svg";
const SIZE = 480;
const MARGIN = 16;
const SHAPES = { // of radius 6, as matplotlib's markers
  o: "M-5.5,0a5.5,5.5 0 1,0 11,0a5.5,5.5 0 1,0 -11,0z",
  s: "M-5,-5h10v10h-10z",
  "^": "M0,-6L6,5H-6z",
  D: "M0,-6.5L6.5,0L0,6.5L-6.5,0z",
  v: "M0,6L6,-5H-6z",
  P: "M-2,-6h4v4h4v4h-4v4h-4v-4h-4v-4h4z",
  X: "M-3,-6L0,-3L3,-6L6,-3L3,0L6,3L3,6L0,3L-3,6L-6,3L-3,0L-6,-3z",
  "*": "M0,-7L1.7,-2.3L6.7,-2.2L2.7,0.9L4.1,5.7L0,2.8L-4.1,5.7L-2.7,0.9L-6.7,-2.2L-1.7,-2.3z",
};
const data = JSON.parse(document.getElementById("data").textContent);
const selection = document.getElementById("selection");
const pictures = [];
const chips = [];
let chosen = null;

function draw(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

/** Marker of a concept. Black is invisible in dark mode, so it becomes the text colour. */
function mark({ colour, shape }) {
  return draw("path", { d: SHAPES[shape], fill: colour === "#000000" ? "currentColor" : colour });
}

function make(tag, text) {
  const made = document.createElement(tag);
  made.textContent = text;
  return made;
}

/** Circle a name in every figure and show it as text; -1 for none. */
function point(at) {
  for (const marks of pictures) marks.forEach((one, number) => one.classList.toggle("ring", number === at));
  if (at >= 0) {
    const [name, concept] = data.names[at];
    const { id, label } = data.concepts[concept];
    selection.replaceChildren(make("b", name), ` \u2014 ${label} `, make("small", id));
  } else if (chosen === null) {
    selection.replaceChildren();
  } else {
    const { id, label } = data.concepts[chosen];
    const names = data.names.filter(([, concept]) => concept === chosen).map(([name]) => name);
    selection.replaceChildren(make("b", label), " ", make("small", id), ` \u2014 ${names.join("; ")}`);
  }
}

function choose(concept) {
  chosen = chosen === concept ? null : concept;
  for (const marks of pictures) {
    marks.forEach((one, at) => {
      one.classList.toggle("faint", chosen !== null && data.names[at][1] !== chosen);
      one.setAttribute("aria-pressed", String(data.names[at][1] === chosen));
    });
  }
  chips.forEach((chip, number) => chip.setAttribute("aria-pressed", String(number === chosen)));
  point(-1);
}

/** Move the single tab stop of a figure, as the arrow keys do. */
function walk(marks, from, to) {
  marks[from].setAttribute("tabindex", "-1");
  marks[to].setAttribute("tabindex", "0");
  marks[to].focus();
}

function onKey(event, marks, at) {
  const last = marks.length - 1;
  const to = {
    ArrowRight: Math.min(at + 1, last), ArrowDown: Math.min(at + 1, last),
    ArrowLeft: Math.max(at - 1, 0), ArrowUp: Math.max(at - 1, 0), Home: 0, End: last,
  }[event.key];
  if (to !== undefined) walk(marks, at, to);
  else if (event.key === "Enter" || event.key === " ") choose(data.names[at][1]);
  else return;
  event.preventDefault();
}

function picture({ name, nearest, points }) {
  const svg = draw("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, role: "group", "aria-label": name });
  const marks = points.map(([x, y], at) => {
    const [text, concept] = data.names[at];
    const one = mark(data.concepts[concept]);
    const place = (share) => (MARGIN + share * (SIZE - 2 * MARGIN)).toFixed(1);
    for (const [key, value] of Object.entries({
      transform: `translate(${place(x)} ${place(1 - y)})`, role: "button", class: "mark", "aria-pressed": "false",
      tabindex: at ? "-1" : "0", "aria-label": `${text}, ${data.concepts[concept].label}`,
    })) one.setAttribute(key, value);
    return one;
  });
  marks.forEach((one, at) => {
    one.addEventListener("pointerenter", () => point(at));
    one.addEventListener("pointerleave", () => point(-1));
    one.addEventListener("focus", () => point(at));
    one.addEventListener("blur", () => point(-1));
    one.addEventListener("click", () => choose(data.names[at][1]));
    one.addEventListener("keydown", (event) => onKey(event, marks, at));
  });
  svg.append(...marks);
  pictures.push(marks);
  const figure = document.createElement("figure");
  const caption = make("figcaption", name);
  const share = `nearest name has the same concept: ${Math.round(100 * nearest)}%`;
  caption.append(make("small", share));
  figure.append(caption, svg);
  return figure;
}

document.getElementById("panels").append(...data.models.map(picture));
data.concepts.forEach((concept, number) => {
  const chip = make("button", "");
  const icon = draw("svg", { viewBox: "-8 -8 16 16", width: "16", height: "16", "aria-hidden": "true" });
  icon.append(mark(concept));
  chip.type = "button";
  chip.append(icon, concept.label);
  chip.setAttribute("aria-pressed", "false");
  chip.addEventListener("click", () => choose(number));
  chips.push(chip);
});
document.getElementById("concepts").append(...chips);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && chosen !== null) choose(chosen);
});
