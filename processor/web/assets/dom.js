// Building and updating elements. Text only ever becomes text: nothing here parses markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const el = (tag, attributes, ...children) => filled(document.createElement(tag), attributes, children);

export const svg = (tag, attributes, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

// A name from an event. Isolated, so that right-to-left text does not reorder what is around it.
export const named = (text, attributes) => el("bdi", attributes, visible(text));

// Control characters and marks of direction are shown, not obeyed: two names that look alike are not the same.
export function visible(text) {
  return text
    .replace(/[\u0000-\u001f]/g, (c) => String.fromCharCode(0x2400 + c.charCodeAt(0)))
    .replace(/[\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, coded)
    .replace(/[\p{L}\p{M}]+/gu, (word) => (/\p{Script=Latin}/u.test(word) ? word.replace(ALIKE, coded) : word));
}

// Letters that look like Latin ones. In a word with Latin letters they are shown by number: "Bаnk" is not "Bank".
const ALIKE = /[\p{Script=Cyrillic}\p{Script=Greek}\p{Script=Armenian}\p{Script=Cherokee}]/gu;

const coded = (c) => `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`;

// Make the children of a node like these, changing only what differs: focus, selection and a screen reader's place
// stay where they are. Children with data-key keep their identity when the order changes.
export function patch(node, children) {
  const fresh = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  const keyed = new Map();
  for (const child of node.children) if (child.dataset.key !== undefined) keyed.set(child.dataset.key, child);
  let place = node.firstChild;
  for (const item of fresh) {
    const next = typeof item === "string" ? document.createTextNode(item) : item;
    const key = next.dataset?.key;
    const same = key !== undefined ? keyed.get(key) : place && place.dataset?.key === undefined ? place : null;
    if (!same || !alike(same, next)) {
      node.insertBefore(next, place);
      continue;
    }
    if (same === place) place = place.nextSibling;
    else node.insertBefore(same, place);
    update(same, next);
  }
  while (place) {
    const after = place.nextSibling;
    place.remove();
    place = after;
  }
}

const alike = (old, next) => old.nodeType === next.nodeType && old.nodeName === next.nodeName;

function update(old, next) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== next.data) old.data = next.data;
    return;
  }
  for (const { name } of [...old.attributes]) if (!next.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of next.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  patch(old, [...next.childNodes]);
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
