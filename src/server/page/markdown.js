// Markdown to elements. Text only ever becomes text nodes; links are http, https and mailto; images are named, never
// fetched. Time is linear in the text but for the inside of one paragraph, which is bounded.
import { el, copyButton } from "./dom.js";
import { highlight } from "./highlight.js";
import { drawFormula } from "./math.js";

const MAX_INLINE = 20000; // characters of a block that are searched for emphasis, links, ...
const MAX_DEPTH = 12; // of quotes and lists in each other
const MAX_FORMULA = 4000; // characters
const MAX_FORMULA_LINES = 100;
const MAX_COLUMNS = 1000; // of a table: WebKit needs most of a minute to lay fifteen thousand out
const SHORT_CELL = 20; // characters of a table's cell that stay on one line
const SAFE_LINK = /^(https?:\/\/|mailto:)/i;

// ---------------------------------------------------------------- blocks

const FENCE = /^( {0,3})(`{3,}|~{3,})[ \t]*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*$/;
const RULE = /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,8})([-*+]|\d{1,9}[.)])([ \t]+|$)/;
const DELIMITER_ROW = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

const FORMULA = /^ {0,3}(\\\[|\$\$)/;

const blank = (line) => line.trim() === "";

const opensBlock = (line) => FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) ||
  FORMULA.test(line);

function fenceEnd(lines, start, marker) {
  for (let i = start; i < lines.length; i++) {
    const text = lines[i].trim();
    if (text.length >= marker.length && text === marker[0].repeat(text.length)) return i;
  }
  return lines.length;
}

// Where a formula on lines of its own ends, or null: not every bracket is one, and text may follow it.
function formulaEnd(lines, start) {
  const open = FORMULA.exec(lines[start]);
  if (!open) return null;
  const marker = open[1] === "$$" ? "$$" : "\\]";
  for (let i = start; i < Math.min(lines.length, start + MAX_FORMULA_LINES) && !blank(lines[i]); i++) {
    const line = i === start ? lines[i].slice(open[0].length) : lines[i];
    const at = line.indexOf(marker);
    if (at >= 0) return blank(line.slice(at + 2)) ? i + 1 : null;
  }
  return null;
}

// An item goes on over indented lines, over lines that only continue its paragraph, and over blank lines between those.
function itemEnd(lines, start, indent) {
  let i = start + 1;
  let fence = FENCE.exec(lines[start].replace(ITEM, ""));
  if (fence) i = fenceEnd(lines, i, fence[2]) + 1;
  for (; i < lines.length; i++) {
    const line = lines[i];
    if (blank(line)) {
      const next = lines[i + 1];
      if (next === undefined || blank(next) || next.search(/\S/) < indent) break;
      continue;
    }
    const depth = line.search(/\S/);
    if (depth < indent && (ITEM.test(line) || opensBlock(line) || blank(lines[i - 1]))) break;
    fence = FENCE.exec(line.trimStart());
    if (fence && depth >= indent) i = Math.min(fenceEnd(lines, i + 1, fence[2]), lines.length - 1);
  }
  return Math.min(i, lines.length);
}

function listEnd(lines, start) {
  const ordered = /\d/.test(ITEM.exec(lines[start])[2]);
  let i = start;
  for (;;) {
    const match = ITEM.exec(lines[i]);
    i = itemEnd(lines, i, match[1].length + match[2].length + 1);
    let next = i;
    while (next < lines.length && blank(lines[next])) next++;
    const following = next < lines.length && !RULE.test(lines[next]) && ITEM.exec(lines[next]);
    if (!following || /\d/.test(following[2]) !== ordered) return i;
    i = next;
  }
}

function blockEnd(lines, i) {
  const line = lines[i];
  const fence = FENCE.exec(line);
  if (fence) return { kind: "code", end: Math.min(fenceEnd(lines, i + 1, fence[2]) + 1, lines.length) };
  if (HEADING.test(line)) return { kind: "heading", end: i + 1 };
  if (RULE.test(line)) return { kind: "rule", end: i + 1 };
  let end = formulaEnd(lines, i);
  if (end !== null) return { kind: "formula", end };
  end = i + 1;
  if (QUOTE.test(line)) {
    while (end < lines.length && QUOTE.test(lines[end])) end++;
    return { kind: "quote", end };
  }
  if (ITEM.test(line)) return { kind: "list", end: listEnd(lines, i) };
  if (line.includes("|") && end < lines.length && lines[end].includes("-") && DELIMITER_ROW.test(lines[end]) &&
    cells(lines[end]).length <= MAX_COLUMNS) {
    while (end < lines.length && lines[end].includes("|") && !blank(lines[end])) end++;
    return { kind: "table", end };
  }
  while (end < lines.length && !blank(lines[end]) && !opensBlock(lines[end]) && !ITEM.test(lines[end])) end++;
  return { kind: "paragraph", end };
}

// [{kind, lines, apart}] from top to bottom. `apart`: a blank line stands above.
export function splitBlocks(text) {
  const lines = text.replace(/\r\n?/g, "\n").replace(/\t/g, "    ").split("\n");
  const blocks = [];
  for (let i = 0; i < lines.length;) {
    if (blank(lines[i])) {
      i++;
      continue;
    }
    const { kind, end } = blockEnd(lines, i);
    blocks.push({ kind, lines: lines.slice(i, end), apart: i > 0 && blank(lines[i - 1]) });
    i = end;
  }
  return blocks;
}

const RIGHT_TO_LEFT = /^\P{L}*[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/u;

// Of a list, a quote or a table as a whole: where its marks, bars and columns begin.
const direction = (lines) => (RIGHT_TO_LEFT.test(lines.slice(0, 20).join("\n").slice(0, 2000)) ? "rtl" : undefined);

// ---------------------------------------------------------------- inline

function link(target, children) {
  if (!SAFE_LINK.test(target)) return el("span", {}, ...children);
  return el("a", { href: target, target: "_blank", rel: "noopener noreferrer nofollow" }, ...children);
}

class Inline {
  constructor(text) {
    this.text = text;
    this.absent = new Set(); // delimiters that do not come again
  }

  find(delimiter, from) {
    if (this.absent.has(delimiter)) return -1;
    const at = this.text.indexOf(delimiter, from);
    if (at < 0) this.absent.add(delimiter);
    return at;
  }

  // Each takes what begins at i, and returns [node, where it ends] or null.
  code(i) {
    let ticks = 1;
    while (this.text[i + ticks] === "`") ticks++;
    const marker = "`".repeat(ticks);
    let end = this.find(marker, i + ticks);
    while (end >= 0 && this.text[end + ticks] === "`") {
      let past = end + ticks;
      while (this.text[past] === "`") past++;
      end = this.find(marker, past);
    }
    if (end < 0) return [document.createTextNode(marker), i + ticks];
    let inside = this.text.slice(i + ticks, end).replace(/\n/g, " ");
    if (inside.length > 2 && inside.startsWith(" ") && inside.endsWith(" ")) inside = inside.slice(1, -1);
    return [el("code", {}, inside), end + ticks];
  }

  emphasis(i, depth) {
    const mark = this.text[i];
    const strong = this.text[i + 1] === mark;
    if (mark === "~" && !strong) return null;
    const marker = strong ? mark + mark : mark;
    const begin = i + marker.length;
    if (/\s/.test(this.text[begin] ?? " ")) return null;
    if (mark === "_" && /[\p{L}\p{N}]/u.test(this.text[i - 1] ?? " ")) return null;
    for (let end = this.find(marker, begin + 1); end >= 0; end = this.find(marker, end + 1)) {
      const inWord = mark === "_" && /[\p{L}\p{N}]/u.test(this.text[end + marker.length] ?? " ");
      const partOfStrong = !strong && (this.text[end + 1] === mark || this.text[end - 1] === mark);
      if (!/\s/.test(this.text[end - 1]) && !inWord && !partOfStrong) {
        const tag = mark === "~" ? "del" : strong ? "strong" : "em";
        return [el(tag, {}, ...inline(this.text.slice(begin, end), depth + 1)), end + marker.length];
      }
      if (end - begin > 2000) break;
    }
    return null;
  }

  // Where the address in parentheses ends; it may hold pairs of them itself.
  targetEnd(begin) {
    let open = 0;
    const parens = /[()]/g;
    parens.lastIndex = begin;
    for (let match = parens.exec(this.text); match && match.index < begin + 2000; match = parens.exec(this.text)) {
      open += match[0] === "(" ? 1 : -1;
      if (open < 0) return match.index;
    }
    return null;
  }

  bracket(i, depth) {
    const image = this.text[i] === "!";
    const begin = i + (image ? 2 : 1);
    const close = this.find("](", begin);
    if (close < 0 || close - begin > 1000) return null;
    const end = this.targetEnd(close + 2);
    if (end === null) return null;
    const target = this.text.slice(close + 2, end).trim().split(/\s/)[0].replace(/^<|>$/g, "");
    const label = this.text.slice(begin, close);
    if (label.includes("[") && !image) return null;
    const children = image ? [`[image: ${label || target}]`] : inline(label, depth + 1);
    return [link(target, children), end + 1];
  }

  formula(i) {
    const marker = ["$$", "$", "\\(", "\\["].find((one) => this.text.startsWith(one, i));
    const begin = i + marker.length;
    const close = { "\\(": "\\)", "\\[": "\\]" }[marker] ?? marker;
    const end = this.find(close, begin);
    if (end <= begin || end - begin > MAX_FORMULA) return null;
    const source = this.text.slice(begin, end);
    // Between two single dollars there may also be prices.
    if (marker === "$" && (/^\s|\s$|\n/.test(source) || /\d/.test(this.text[end + 1] ?? "") || !/[\\^_=]|^\p{L}$/u.test(source))) return null;
    return [drawFormula(source, marker === "$$" || marker === "\\[") ?? el("code", {}, source), end + close.length];
  }

  address(i) {
    const match = /^(?:https?:\/\/|mailto:)[^\s<>"'`]+/i.exec(this.text.slice(i, i + 2000));
    if (!match || /[\p{L}\p{N}]/u.test(this.text[i - 1] ?? " ")) return null;
    const address = match[0].replace(/[.,;:!?)\]}*_]+$/, "");
    return [link(address, [address]), i + address.length];
  }

  at(i, depth) {
    switch (this.text[i]) {
      case "`": return this.code(i);
      case "*": case "_": case "~": return this.emphasis(i, depth);
      case "!": return this.text[i + 1] === "[" ? this.bracket(i, depth) : null;
      case "[": return this.bracket(i, depth);
      case "h": case "m": return this.address(i);
      case "$": return this.formula(i);
      case "\\": return (/[([]/.test(this.text[i + 1] ?? "") && this.formula(i)) || this.escaped(i);
      case "\n": return [el("br"), i + 1];
      default: return null;
    }
  }

  escaped(i) {
    return /[!-/:-@[-`{-~]/.test(this.text[i + 1] ?? "")
      ? [document.createTextNode(this.text[i + 1]), i + 2] : null;
  }
}

function inline(text, depth = 0) {
  if (text.length > MAX_INLINE || depth > MAX_DEPTH) return [text];
  const source = new Inline(text);
  const nodes = [];
  const special = /[`*_~![\\\nhm$]/g;
  let plain = 0;
  for (let i = 0; i < text.length;) {
    special.lastIndex = i;
    const match = special.exec(text);
    if (!match) break;
    const found = source.at(match.index, depth);
    if (found) {
      if (match.index > plain) nodes.push(text.slice(plain, match.index));
      nodes.push(found[0]);
      i = plain = found[1];
    } else {
      i = match.index + 1;
    }
  }
  if (plain < text.length) nodes.push(text.slice(plain));
  return nodes;
}

// ---------------------------------------------------------------- elements

function codeBlock(lines) {
  const open = FENCE.exec(lines[0]);
  const closed = lines.length > 1 && fenceEnd(lines.slice(-1), 0, open[2]) === 0;
  const indent = new RegExp(`^ {0,${open[1].length}}`);
  const text = lines.slice(1, closed ? -1 : undefined).map((line) => line.replace(indent, "")).join("\n");
  const language = open[3].trim().split(/\s/)[0].slice(0, 24);
  return el("figure", { class: "code" },
    el("figcaption", {}, el("span", {}, language || "code"), copyButton(() => text, "Copy code")),
    el("pre", { tabindex: "0", "aria-label": `Code${language ? `, ${language}` : ""}` },
      el("code", {}, ...highlight(text, language))));
}

function formulaBlock(lines) {
  const source = lines.join("\n").trim().slice(2, -2);
  return el("div", { class: "formula", tabindex: "0", role: "group", "aria-label": "Formula" },
    drawFormula(source, true) ?? el("code", {}, source.trim()));
}

function cells(line) {
  const trimmed = line.trim().replace(/^\|/, "").replace(/\|$/, "");
  return trimmed.split(/(?<!\\)\|/).map((cell) => cell.trim().replace(/\\\|/g, "|"));
}

function table(lines) {
  const align = cells(lines[1]).map((cell) =>
    cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : cell.startsWith(":") ? "left" : undefined);
  const looks = (cell, column) => [cell.length <= SHORT_CELL && "short", align[column] && `align-${align[column]}`]
    .filter(Boolean).join(" ");
  const row = (tag, line) => el("tr", {}, ...cells(line).slice(0, align.length).map((cell, column) =>
    el(tag, { class: looks(cell, column) || undefined, scope: tag === "th" && "col" }, ...inline(cell))));
  return el("div", { class: "table", tabindex: "0", role: "group", "aria-label": "Table", dir: direction([lines[0]]) },
    el("table", {}, el("thead", {}, row("th", lines[0])), el("tbody", {}, ...lines.slice(2).map((l) => row("td", l)))));
}

function list(lines, depth) {
  const first = ITEM.exec(lines[0]);
  const number = parseInt(first[2], 10);
  const items = [];
  let loose = false; // a blank line between items, or between the blocks of one: all items have paragraphs
  for (let i = 0; i < lines.length;) {
    if (blank(lines[i])) {
      loose = true;
      i++;
      continue;
    }
    const match = ITEM.exec(lines[i]);
    const indent = match[1].length + match[2].length + 1;
    const end = itemEnd(lines, i, indent);
    const own = lines.slice(i, end).map((line, k) =>
      k === 0 ? line.slice(match[0].length) : line.slice(Math.min(indent, Math.max(line.search(/\S/), 0))));
    const task = /^\[([ xX])\] /.exec(own[0]);
    if (task) own[0] = own[0].slice(4);
    const parts = splitBlocks(own.join("\n"));
    loose ||= parts.some((part) => part.apart);
    items.push({ task, parts });
    i = end;
  }
  const drawn = items.map(({ task, parts }) => {
    const box = task && el("input", { type: "checkbox", disabled: true, checked: task[1] !== " ", "aria-label": "Task" });
    return el("li", { class: task && "task" }, box, ...parts.flatMap((part) => block(part, depth + 1, !loose)));
  });
  const looks = { class: loose && "loose", dir: direction(lines) };
  return Number.isNaN(number) ? el("ul", looks, ...drawn) : el("ol", { start: number !== 1 && number, ...looks }, ...drawn);
}

// `tight`: paragraphs stand bare, as in a list without blank lines.
function block({ kind, lines }, depth, tight) {
  if (kind === "code") return [codeBlock(lines)];
  if (kind === "rule") return [el("hr")];
  if (kind === "heading") {
    const match = HEADING.exec(lines[0]);
    // The page has its own h1 and h2 above.
    return [el(`h${Math.min(match[1].length + 2, 6)}`, { class: `level-${match[1].length}`, dir: "auto" }, ...inline(match[2]))];
  }
  if (kind === "table") return [table(lines)];
  if (kind === "formula") return [formulaBlock(lines)];
  if (kind === "quote" && depth < MAX_DEPTH) {
    const quoted = lines.map((line) => line.replace(QUOTE, ""));
    return [el("blockquote", { dir: direction(quoted) }, ...blocks(quoted.join("\n"), depth + 1))];
  }
  if (kind === "list" && depth < MAX_DEPTH) return [list(lines, depth)];
  const text = lines.map((line) => line.trim()).join("\n");
  return tight ? inline(text) : [el("p", { dir: "auto" }, ...inline(text))];
}

function blocks(text, depth) {
  return splitBlocks(text).flatMap((one) => block(one, depth, false));
}

// Brings `target` up to the text. What did not change since the last call keeps its elements (and its selection).
export function renderMarkdown(target, text) {
  const wanted = splitBlocks(text);
  const drawn = target.drawnBlocks ?? [];
  let same = 0;
  const key = ({ kind, lines }) => `${kind}\n${lines.join("\n")}`;
  while (same < drawn.length && same < wanted.length && drawn[same].key === key(wanted[same])) same++;
  for (const old of drawn.slice(same)) old.nodes.forEach((node) => node.remove());
  const fresh = wanted.slice(same).map((one) => ({ key: key(one), nodes: block(one, 0, false) }));
  target.append(...fresh.flatMap((one) => one.nodes));
  target.drawnBlocks = [...drawn.slice(0, same), ...fresh];
}
