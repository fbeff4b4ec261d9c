// The one way in which this page makes elements. Text goes in as text, so no mention or name can be markup.

const SVG = "http://www.w3.org/2000/svg";

export const find = (id) => document.getElementById(id);

/** make("p", { class: "quiet", onclick: f }, "text", element, null): functions listen, null is left out. */
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same, for drawings. */
export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** A button that looks like a link. */
export const link = (text, act, kind = "") =>
  make("button", { type: "button", class: `plain ${kind}`, onclick: act }, text);

export const tags = ({ types }) => types.map((type) => make("span", { class: "tag" }, type));

export const count = (number) => number.toLocaleString("en");

export const some = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** Say something to those who listen to the page. */
export function announce(text) {
  find("announced").textContent = text;
}

/** Show one line above everything, with something to do about it; no text takes it away. */
export function notice(text = "", label = null, act = null) {
  const button = label === null ? null : make("button", { type: "button", onclick: act }, label);
  const close = make("button", { type: "button", class: "plain", onclick: () => notice() }, "Close");
  find("notice").hidden = !text;
  find("notice").replaceChildren(make("span", {}, text), ...[button, close].filter(Boolean));
}

/** Call the last of many calls, once nothing was called for a while. */
export function settled(act, milliseconds) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...values), milliseconds);
  };
}
