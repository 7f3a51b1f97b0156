// Search over all that was said: every word of the question has to stand somewhere in a conversation. Nothing here
// knows the screen.

const AROUND = 16; // characters shown before what was found
const AFTER = 80;

function patternsOf(question) {
  const words = question.trim().split(/\s+/).filter(Boolean).slice(0, 8);
  return words.map((word) => new RegExp(word.slice(0, 100).replace(/[$()*+.?[\\\]^{|}]/g, "\\$&"), "iu"));
}

// The place as {before, match, after}, on one line.
function excerpt(text, pattern) {
  const { index, 0: match } = pattern.exec(text);
  const begin = Math.max(0, index - AROUND);
  const line = (part) => part.replace(/^[\udc00-\udfff]|[\ud800-\udbff]$/g, "").replace(/\s+/g, " "); // no half of a character
  return {
    before: (begin > 0 ? "…" : "") + line(text.slice(begin, index)).trimStart(), match,
    after: line(text.slice(index + match.length, index + match.length + AFTER)),
  };
}

// [{conversation, node, excerpt}] in the order given. `node`: the message that says it, if one does rather than the title.
export function search(conversations, question) {
  const patterns = patternsOf(question);
  const hits = [];
  for (const conversation of conversations) {
    const said = Object.values(conversation.nodes).filter((node) => node.content);
    const has = (text) => patterns.every((pattern) => pattern.test(text));
    const inTitle = has(conversation.title);
    const node = said.find((one) => has(one.content)) ?? (inTitle ? undefined : said.find((one) => patterns[0].test(one.content)));
    const everywhere = (pattern) => pattern.test(conversation.title) || said.some((one) => pattern.test(one.content));
    if (!inTitle && !patterns.every(everywhere)) continue;
    hits.push({ conversation, node, excerpt: node && excerpt(node.content, patterns[0]) });
  }
  return hits;
}
