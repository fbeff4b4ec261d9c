// Map of a mention and its nearest names, at the positions computed by the service.
//
// Drawn in CSS pixels, so that text stays readable on a phone. Labels that would overlap are left out; the name
// of a point is shown when it is hovered or reached by the arrow keys.

import { draw, find } from "./dom.js";

const MARGIN = 28;
const LETTER = 6.8; // pixels, on average
const LONGEST = 28;

/** Draw a map; points of `concept` are highlighted, and `open(id)` is called for a selected point. */
export function drawMap(map, mention, concept, open) {
  const frame = find("map");
  const width = Math.max(frame.clientWidth, 240);
  const height = Math.round(Math.min(460, Math.max(300, width * 0.6)));
  const place = scale([map, ...map.points], width, height);
  const points = map.points.map((point) =>
    ({ ...point, at: place(point), highlighted: point.concept_ids.includes(concept) }));
  const [x, y] = place(map);
  const occupied = [];
  const name = title(occupied, [x, y, mention], width);
  const highlighted = points.filter((point) => point.highlighted).map((point) => label(occupied, point, width));
  occupied.push(...points.map(({ at: [left, top] }) => [left - 5, top - 5, left + 5, top + 5]));
  const others = points.filter((point) => !point.highlighted).toSorted((one, other) => other.score - one.score);
  const labels = [...highlighted, ...others.map((point) => label(occupied, point, width))];
  const dots = points.map((point, number) => dot(point, number === 0, open));
  frame.replaceChildren(draw("svg", {
    viewBox: `0 0 ${width} ${height}`, width, height,
    role: "group", "aria-label": `Names nearest to ${mention}`, onkeydown: (event) => onKey(event, dots),
  },
    ...labels.filter(Boolean), ...dots,
    draw("path", { class: "mention", d: `M${x},${y - 8}l8,8l-8,8l-8,-8z` }), name));
  const share = Math.round(100 * map.explained.reduce((sum, one) => sum + one, 0));
  find("map-text").textContent = `Nearby names have similar meanings. The map shows ${share} % of the variance.`;
}

/** Both axes have the same scale, so that distances are comparable. */
function scale(points, width, height) {
  const [xs, ys] = [points.map(({ x }) => x), points.map(({ y }) => y)];
  const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const one = Math.min((width - 2 * MARGIN) / (right - left || 1), (height - 2 * MARGIN) / (high - low || 1));
  const [across, up] = [(left + right) / 2, (low + high) / 2];
  return ({ x, y }) => [width / 2 + (x - across) * one, height / 2 - (y - up) * one];
}

const short = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}\u2026` : text);

/** The label of the mention, always above its point. */
function title(occupied, [x, y, mention], width) {
  const text = short(mention);
  const half = text.length * LETTER * 0.65;
  const middle = Math.max(half + 2, Math.min(width - half - 2, x));
  occupied.push([middle - half, y - 28, middle + half, y - 9], [x - 9, y - 9, x + 9, y + 9]);
  return draw("text", { class: "mention", x: middle, y: y - 14, "text-anchor": "middle" }, text);
}

/** The label of a name, right or left of its point; null if there is no room. */
function label(occupied, { at: [x, y], name, highlighted }, width) {
  const text = short(name);
  const wide = text.length * LETTER;
  for (const [start, anchor] of [[x + 10, "start"], [x - 10 - wide, "end"]]) {
    const box = [start, y - 7, start + wide, y + 7];
    if (start < 2 || start + wide > width - 2 || occupied.some((other) => overlap(box, other))) continue;
    occupied.push(box);
    const side = anchor === "end" ? x - 10 : x + 10;
    return draw("text", { class: highlighted ? "own" : "", x: side, y: y + 4, "text-anchor": anchor }, text);
  }
  return null;
}

const overlap = ([left, top, right, bottom], other) =>
  left < other[2] && other[0] < right && top < other[3] && other[1] < bottom;

function dot({ at: [x, y], name, preferred_name, concept_ids, score, highlighted }, first, open) {
  const description = `${name} \u2014 ${preferred_name} ${concept_ids[0]}, score ${score.toFixed(2)}`;
  const showName = () => { find("map-text").textContent = description; };
  const choose = () => open(concept_ids[0]);
  return draw("circle", {
    class: highlighted ? "own" : "", cx: x, cy: y, r: highlighted ? 6 : 4.5,
    role: "button", tabindex: first ? 0 : -1, "aria-label": description,
    onmouseenter: showName, onfocus: showName, onclick: choose,
  });
}

/** All points are one tab stop; the arrow keys move between them. */
function onKey(event, dots) {
  const at = dots.indexOf(event.target);
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (at < 0) return;
  if (step) {
    const next = dots[(at + step + dots.length) % dots.length];
    dots[at].setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  } else if (event.key === "Enter" || event.key === " ") event.target.dispatchEvent(new MouseEvent("click"));
  else return;
  event.preventDefault();
  event.stopPropagation();
}
