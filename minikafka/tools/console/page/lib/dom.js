// Elements from data. Data becomes text nodes and attributes only, never markup: records and names are hostile input.

const SVG = "http://www.w3.org/2000/svg";

/** Return a new HTML element. `properties` has attributes, and functions for events (`onclick`). */
export function el(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

/** Return a new SVG element. */
export function svg(tag, properties = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

function filled(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) set(node, name, value);
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Set an attribute; true means present, and null, undefined or false means absent. Functions become listeners. */
export function set(node, name, value) {
  if (typeof value === "function") {
    node.addEventListener(name.slice(2), value);
  } else if (value === null || value === undefined || value === false) {
    node.removeAttribute(name);
  } else if (node.getAttribute(name) !== String(value === true ? "" : value)) {
    node.setAttribute(name, value === true ? "" : value);
  }
}

/** Write the text of a node if it has changed, so that selections and screen readers are not disturbed. */
export function write(node, text) {
  if (node.textContent !== String(text)) node.textContent = text;
}

/** Replace the children of a node. */
export function fill(node, ...children) {
  node.replaceChildren(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return node;
}

/** Make the children of `parent` those of `items`: one node per key, which is kept as long as its key exists. */
export function keyed(parent, items, keyOf, make, update = () => {}) {
  const known = parent.keyedNodes ?? new Map();
  const wanted = new Map();
  let previous = null;
  for (const item of items) {
    const key = String(keyOf(item));
    if (wanted.has(key)) continue;
    const node = known.get(key) ?? make(item);
    update(node, item);
    wanted.set(key, node);
    const place = previous ? previous.nextSibling : parent.firstChild;
    if (place !== node) parent.insertBefore(node, place);
    previous = node;
  }
  const kept = new Set(wanted.values());
  for (const child of [...parent.children]) if (!kept.has(child)) child.remove();
  parent.keyedNodes = wanted;
}

/** Tell users of screen readers about a change that has no focus. */
export function announce(text) {
  write(document.getElementById("announcer"), text);
}

/** Return the nodes of a text in which `commands` stand between backquotes. */
export function withCode(text) {
  return text.split("`").map((part, at) => (at % 2 ? el("code", {}, part) : part));
}

/** Return a button with a text. */
export function button(text, onclick, properties = {}) {
  return el("button", { type: "button", onclick, ...properties }, text);
}

/** Return the first line of a view: its title, what it is, and its buttons or fields at the right. */
export function headline(title, about, ...right) {
  const what = about && el("span", { class: "muted" }, about);
  return el(
    "div",
    { class: "headline" },
    el("h2", { class: "large" }, title),
    what,
    el("span", { class: "grow" }),
    right,
  );
}

/** Return a link to a view of this page. */
export function link(text, ...path) {
  return el("a", { href: hashOf(...path) }, text);
}

export function hashOf(...path) {
  return "#/" + path.map(encodeURIComponent).join("/");
}
