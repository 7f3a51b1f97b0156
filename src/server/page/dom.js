// Elements are made here, and nowhere from HTML text: what a model says cannot become markup.

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "open") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const SVG = "http://www.w3.org/2000/svg";

// A drawing of the sprite in page.html; it says nothing to a screen reader.
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `#i-${name}`);
  svg.append(use);
  return svg;
}

export function iconButton(name, label, onclick, attributes = {}) {
  return el("button", { type: "button", class: "icon-button", "aria-label": label, title: label, onclick, ...attributes },
    icon(name));
}

export async function copyText(text) {
  if (navigator.clipboard && window.isSecureContext) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // Falls through to the older way, which needs no permission.
    }
  }
  const area = el("textarea", { class: "visually-hidden", value: text });
  const focused = document.activeElement;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  focused?.focus({ preventScroll: true });
  return done;
}

// A button that copies what `text` returns, and says so for a moment.
export function copyButton(text, label) {
  const button = iconButton("copy", label, async () => {
    const done = await copyText(text());
    button.replaceChildren(icon(done ? "check" : "cross"));
    button.setAttribute("aria-label", done ? "Copied" : "Copying failed");
    setTimeout(() => {
      button.replaceChildren(icon("copy"));
      button.setAttribute("aria-label", label);
    }, 1500);
  });
  return button;
}

const whole = new Intl.NumberFormat("en");

export const count = (number) => whole.format(number);

export const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

export const seconds = (value) => value < 1 ? `${Math.max(1, Math.round(1000 * value))} ms`
  : `${value < 10 ? value.toFixed(1) : Math.round(value)} s`;

export const rate = (value) => `${value < 100 ? value.toFixed(1) : count(Math.round(value))} tok/s`;
