// A quiet colouring of code: comments, strings, numbers and a few words. It knows families of languages, not grammars.
import { el } from "./dom.js";

const MAX_CODE = 100000; // characters; longer code stays plain

const WORDS = new Set((
  "abstract and as async await auto bool boolean break byte case catch char class const continue def default del do double elif else " +
  "enum export extends extern false final finally float fn for from func function global goto if impl implements import in inline " +
  "int interface is lambda let long match module mut namespace new nil none nonlocal not null nullptr or package pass private " +
  "protected pub public raise register return select self short signed sizeof static string struct super switch template this throw " +
  "trait true try type typedef typeof union unsigned use using var virtual void volatile where while with yield None True False " +
  "then fi done esac end begin local set echo insert update delete create table values join on group by order limit having"
).split(" "));

const HASH = new Set("py python sh bash zsh shell console yaml yml toml ini conf rb ruby r perl make makefile dockerfile cmake".split(" "));
const DASH = new Set("sql lua haskell hs ada elm".split(" "));
const PLAIN = new Set("text txt plain plaintext output log markdown md".split(" "));
const MARKUP = new Set("html xml svg vue".split(" "));

function pattern(language) {
  const comment = HASH.has(language) ? "#[^\\n]*"
    : DASH.has(language) ? "--[^\\n]*"
      : MARKUP.has(language) ? "<!--[^]*?(?:-->|$)"
        : "\\/\\/[^\\n]*|\\/\\*[^]*?(?:\\*\\/|$)";
  const string = "\"(?:\\\\.|[^\"\\\\\\n])*\"?|'(?:\\\\.|[^'\\\\\\n])*'?|`(?:\\\\[^]|[^`\\\\])*`?";
  return new RegExp(`(${comment})|(${string})|(\\b\\d[\\w.]*)|([A-Za-z_]\\w*)`, "g");
}

export function highlight(text, language) {
  const name = language.toLowerCase();
  if (!name || PLAIN.has(name) || text.length > MAX_CODE) return [text];
  const nodes = [];
  let plain = 0;
  for (const match of text.matchAll(pattern(name))) {
    const kind = match[1] ? "comment" : match[2] ? "string" : match[3] ? "number"
      : WORDS.has(match[4]) || (name === "sql" && WORDS.has(match[4].toLowerCase())) ? "word" : null;
    if (!kind) continue;
    nodes.push(text.slice(plain, match.index), el("span", { class: `tok-${kind}` }, match[0]));
    plain = match.index + match[0].length;
  }
  nodes.push(text.slice(plain));
  return nodes;
}
