// Making and changing elements. Text goes in as text, never as markup: names come from outside.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element; `properties` are attributes, `class` among them; null leaves one out. */
export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** Make an SVG element. */
export function s(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Change an element's text only if it differs: no work for what stands still. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Change an attribute only if it differs; null takes it away. */
export function setAttribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/** Put `children` into `parent` in this order, moving only what is out of place; what had the focus keeps it. */
export function arrange(parent, children) {
  const focused = document.activeElement;
  const wanted = new Set(children);
  for (const child of [...parent.children]) if (!wanted.has(child)) child.remove();
  let place = parent.firstElementChild;
  for (const child of children) {
    if (place !== null && child !== place && child === place.nextElementSibling) {
      // One that belongs further down: it is put there when its turn comes, and all behind it stay.
      const early = place;
      place = child;
      early.remove();
    }
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
  if (focused !== document.activeElement && focused?.isConnected) focused.focus({ preventScroll: true });
}

/** Keep one keyed child per item: `make(item)` once, `update(child, item)` each time. */
export function keyed(parent, items, key, make, update) {
  const known = (parent.known ??= new Map());
  const now = new Map();
  for (const item of items) {
    const name = key(item);
    const child = known.get(name) ?? make(item);
    update(child, item);
    now.set(name, child);
  }
  parent.known = now;
  arrange(parent, [...now.values()].map((child) => child.element ?? child));
}

const ICONS = {
  good: ["M8 1.2a6.8 6.8 0 1 0 0 13.6A6.8 6.8 0 0 0 8 1.2Z", "m4.9 8.3 2.1 2.1 4.1-4.6"],
  warn: ["M8 1.6 15.2 14.4H.8Z", "M8 6.2v3.6M8 12.1v.1"],
  bad: ["M5.1 1h5.8L15 5.1v5.8L10.9 15H5.1L1 10.9V5.1Z", "m5.6 5.6 4.8 4.8m0-4.8-4.8 4.8"],
  info: ["M8 1.2a6.8 6.8 0 1 0 0 13.6A6.8 6.8 0 0 0 8 1.2Z", "M8 4.4V8l2.4 1.8"],
  note: ["M8 1.2a6.8 6.8 0 1 0 0 13.6A6.8 6.8 0 0 0 8 1.2Z", "M8 7.4v4M8 4.6v.1"],
  again: ["M8 1.2a6.8 6.8 0 1 0 0 13.6A6.8 6.8 0 0 0 8 1.2Z", "M11 6.4A3.4 3.4 0 1 0 11.4 8.6M11.2 3.9v2.6H8.6"],
  quiet: ["M8 1.2a6.8 6.8 0 1 0 0 13.6A6.8 6.8 0 0 0 8 1.2Z", "M5 8h6"],
};

/** A sign that can be told apart without colour: check, triangle, octagon, clock, letter, arrow, dash. */
export function icon(tone) {
  const [shape, mark] = ICONS[tone] ?? ICONS.quiet;
  return s("svg", { viewBox: "0 0 16 16", class: "icon", "aria-hidden": "true" },
    s("path", { class: "icon-shape", d: shape }), s("path", { class: "icon-mark", d: mark }));
}
