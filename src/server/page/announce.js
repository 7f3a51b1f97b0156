// What a screen reader hears of a running answer: whole sentences, not every token.

const region = document.getElementById("announcer");

export function announce(text) {
  const line = document.createElement("p");
  line.textContent = text;
  region.append(line);
  while (region.childNodes.length > 20) region.firstChild.remove();
}

const SENTENCE = /^[^]*(?:[.!?:;…]["')\]]*\s|\n)/;

export class Speaker {
  constructor() {
    this.said = 0;
    this.thinking = false;
  }

  more(node) {
    if (node.reasoning && !node.content && !this.thinking) {
      this.thinking = true;
      announce("Thinking");
    }
    const match = SENTENCE.exec(node.content.slice(this.said, this.said + 4000));
    if (!match || match[0].length < 40) return;
    this.said += match[0].length;
    announce(match[0].trim());
  }

  end(node) {
    const rest = node.content.slice(this.said).trim();
    if (rest) announce(rest.slice(0, 4000));
    for (const call of node.calls ?? []) announce(`Calls ${call.name}`);
    if (node.stopped) announce("Stopped");
    if (!node.error && !node.stopped) announce("End of answer");
  }
}
