// Creates all elements of the page. Text is inserted as text, so no mention or name can become markup.

const SVG = "http://www.w3.org/2000/svg";

export const find = (id) => document.getElementById(id);

/** make("p", { class: "quiet", onclick: f }, "text", element, null); functions listen to events, null is skipped. */
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
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

export const quantity = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** Announce a text to screen readers. */
export function announce(text) {
  find("announcement").textContent = text;
}

/** Show a line at the top, with an optional button; without a text, hide it. */
export function notice(text = "", label = null, act = null) {
  const button = label === null ? null : make("button", { type: "button", onclick: act }, label);
  const close = make("button", { type: "button", class: "plain", onclick: () => notice() }, "Close");
  find("notice").hidden = !text;
  find("notice").replaceChildren(make("span", {}, text), ...[button, close].filter(Boolean));
}

/** Delay calls until there was none for a while; only the last one is made. */
export function debounce(act, milliseconds) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...values), milliseconds);
  };
}
