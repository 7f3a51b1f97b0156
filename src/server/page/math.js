// Formulas, as models write them in LaTeX, to MathML, which browsers draw themselves. It knows what is common, not LaTeX:
// where it meets something else it gives up as a whole, and the formula is shown as it was written.

const MAX_SOURCE = 4000; // characters
const MAX_DEPTH = 40; // of groups, arguments and tables in each other
const NAMESPACE = "http://www.w3.org/1998/Math/MathML";

const table = (text) => new Map(text.trim().split(/\s+/).map((pair) => pair.split("=")));

const LETTERS = table(`alpha=α beta=β gamma=γ delta=δ epsilon=ϵ varepsilon=ε zeta=ζ eta=η theta=θ vartheta=ϑ iota=ι kappa=κ lambda=λ
  mu=μ nu=ν xi=ξ pi=π rho=ρ sigma=σ tau=τ upsilon=υ phi=ϕ varphi=φ chi=χ psi=ψ omega=ω Gamma=Γ Delta=Δ Theta=Θ Lambda=Λ Xi=Ξ Pi=Π
  Sigma=Σ Phi=Φ Psi=Ψ Omega=Ω infty=∞ partial=∂ nabla=∇ ell=ℓ hbar=ℏ Re=ℜ Im=ℑ aleph=ℵ emptyset=∅ varnothing=∅ degree=°`);
const OPERATORS = table(`cdot=⋅ times=× div=÷ pm=± mp=∓ ast=∗ star=⋆ circ=∘ bullet=• oplus=⊕ otimes=⊗ le=≤ leq=≤ ge=≥ geq=≥ ne=≠ neq=≠
  ll=≪ gg=≫ approx=≈ equiv=≡ sim=∼ simeq=≃ cong=≅ propto=∝ to=→ rightarrow=→ leftarrow=← leftrightarrow=↔ Rightarrow=⇒ Leftarrow=⇐
  Leftrightarrow=⇔ implies=⟹ iff=⟺ mapsto=↦ uparrow=↑ downarrow=↓ in=∈ notin=∉ ni=∋ subset=⊂ subseteq=⊆ supset=⊃ supseteq=⊇ cup=∪
  cap=∩ top=⊤ bot=⊥ dagger=† lesssim=≲ gtrsim=≳ setminus=∖ land=∧ wedge=∧ lor=∨ vee=∨ neg=¬ lnot=¬ forall=∀ exists=∃ mid=∣ nmid=∤ parallel=∥ perp=⊥ angle=∠ triangle=△
  ldots=… dots=… cdots=⋯ vdots=⋮ ddots=⋱ therefore=∴ because=∵ prime=′ colon=: bmod=mod lt=< gt=> backslash=\\`);
const SUMS = table("sum=∑ prod=∏ coprod=∐ bigcup=⋃ bigcap=⋂ bigoplus=⨁ bigotimes=⨂ int=∫ iint=∬ iiint=∭ oint=∮");
const FUNCTIONS = new Set(`sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp det dim ker deg gcd arg lim max min sup inf
  limsup liminf Pr`.split(/\s+/));
const WITH_LIMITS = new Set("lim max min sup inf limsup liminf Pr argmax argmin".split(" "));
const SPACES = new Map([[",", "0.17em"], [":", "0.22em"], [">", "0.22em"], [";", "0.28em"], [" ", "0.28em"], ["!", "0"], ["quad", "1em"], ["qquad", "2em"]]);
const ACCENTS = table("hat=^ widehat=^ bar=¯ overline=¯ tilde=~ widetilde=~ vec=→ overrightarrow=→ dot=˙ ddot=¨ overbrace=⏞");
const DELIMITERS = table("{={ }=} |=‖ lbrace={ rbrace=} langle=⟨ rangle=⟩ lfloor=⌊ rfloor=⌋ lceil=⌈ rceil=⌉ vert=| lvert=| rvert=| Vert=‖ lVert=‖ rVert=‖");
const DOUBLE = table("R=ℝ N=ℕ Z=ℤ Q=ℚ C=ℂ P=ℙ E=𝔼 F=𝔽 H=ℍ 1=𝟙");
const NOTHING = new Set("displaystyle textstyle nonumber notag hline".split(" "));
const FENCES = new Map([["pmatrix", "()"], ["bmatrix", "[]"], ["Bmatrix", "{}"], ["vmatrix", "||"], ["Vmatrix", "‖‖"], ["cases", "{ "]]);
const TABLES = new Set("matrix smallmatrix array aligned align align* gather gather* gathered split".split(" "));

const TO_END = /$/y;
const TO_BRACE = /\}/y;
const TO_BRACKET = /\]/y;
const TO_RIGHT = /\\right(?![A-Za-z])/y;
const LIMITS = /\\(no)?limits(?![A-Za-z])/y;
const LENGTH = /(?:\s*\[[\d.]+\s*(?:pt|em|ex|mm)\])?/y; // behind the end of a row
const TO_CELL = /&|\\\\|\\end(?![A-Za-z])/y;

class Unknown extends Error {}

function make(tag, attributes, ...children) {
  const node = document.createElementNS(NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const group = (...nodes) => make("mrow", {}, ...nodes);
const operator = (text, attributes = {}) => make("mo", attributes, text);
const fixed = (text) => operator(text, { stretchy: "false" });

// Letters and digits of the bold alphabet stand in Unicode one after the other.
function bold(text) {
  return Array.from(text, (letter) => {
    const base = /[A-Z]/.test(letter) ? 0x1d400 - 65 : /[a-z]/.test(letter) ? 0x1d41a - 97 : /\d/.test(letter) ? 0x1d7ce - 48 : null;
    return base === null ? letter : String.fromCodePoint(base + letter.charCodeAt(0));
  }).join("");
}

class Reader {
  constructor(source, display) {
    Object.assign(this, { source, display, at: 0, depth: 0 });
  }

  space() {
    while (/\s/.test(this.source[this.at] ?? "")) this.at++;
  }

  match(pattern) {
    pattern.lastIndex = this.at;
    return pattern.exec(this.source);
  }

  take(pattern) {
    const found = this.match(pattern);
    if (!found) throw new Unknown();
    this.at += found[0].length;
    return found;
  }

  deeper(read) {
    if (++this.depth > MAX_DEPTH) throw new Unknown();
    const result = read();
    this.depth--;
    return result;
  }

  // Everything up to `close`, which stays unread.
  row(close) {
    return this.deeper(() => {
      const nodes = [];
      for (this.space(); !this.match(close); this.space()) {
        if (this.at >= this.source.length) throw new Unknown();
        nodes.push(this.scripted());
      }
      return nodes.length === 1 ? nodes[0] : group(...nodes);
    });
  }

  // What one command or script applies to: a group, or one sign.
  argument() {
    this.space();
    return this.deeper(() => (this.source[this.at] === "{" ? this.braced() : this.atom(true).node));
  }

  braced() {
    this.at++;
    const node = this.row(TO_BRACE);
    this.at++;
    return node;
  }

  // The text of a group in which nothing is read.
  raw() {
    this.space();
    return this.take(/\{([^{}\\$]*)\}/y)[1];
  }

  scripted() {
    const { node, limits } = this.atom(false);
    let over = limits && this.display;
    let sub, sup;
    this.space();
    if (this.match(LIMITS)) over = !this.take(LIMITS)[1];
    for (;;) {
      this.space();
      const sign = this.source[this.at];
      if ((sign === "^" && sup) || (sign === "_" && sub)) throw new Unknown();
      if (sign !== "^" && sign !== "_" && sign !== "'") break;
      this.at++;
      if (sign === "'") sup = sup ? group(sup, operator("′")) : operator("′");
      else if (sign === "^") sup = this.argument();
      else sub = this.argument();
    }
    if (sub && sup) return make(over ? "munderover" : "msubsup", {}, node, sub, sup);
    if (sub) return make(over ? "munder" : "msub", {}, node, sub);
    return sup ? make(over ? "mover" : "msup", {}, node, sup) : node;
  }

  atom(single) {
    const sign = String.fromCodePoint(this.source.codePointAt(this.at) ?? 0x7d);
    if (sign === "\\") return this.command();
    if (sign === "{") return { node: this.braced() };
    if (sign === "^" || sign === "_") return { node: group() };
    if (sign === "}" || sign === "&" || sign === "#") throw new Unknown();
    if (/\d/.test(sign)) return { node: make("mn", {}, this.take(single ? /\d/y : /\d+(?:\.\d+)?/y)[0]) };
    this.at += sign.length;
    if (/\p{L}/u.test(sign)) return { node: make("mi", {}, sign) };
    if (sign === "~") return { node: make("mspace", { width: "0.28em" }) };
    return { node: "()[]|/".includes(sign) ? fixed(sign) : operator(sign === "-" ? "−" : sign === "*" ? "∗" : sign) };
  }

  command() {
    const [, name] = this.take(/\\([A-Za-z]+|[^])/y);
    if (LETTERS.has(name)) return { node: make("mi", {}, LETTERS.get(name)) };
    if (OPERATORS.has(name)) return { node: operator(OPERATORS.get(name)) };
    if (SUMS.has(name)) return { node: operator(SUMS.get(name)), limits: !name.endsWith("int") };
    if (FUNCTIONS.has(name)) return { node: make("mi", {}, name), limits: WITH_LIMITS.has(name) };
    if (SPACES.has(name)) return { node: make("mspace", { width: SPACES.get(name) }) };
    if (ACCENTS.has(name)) return { node: make("mover", { accent: "true" }, this.argument(), operator(ACCENTS.get(name))) };
    if (DELIMITERS.has(name)) return { node: fixed(DELIMITERS.get(name)) };
    if (NOTHING.has(name)) return { node: group() };
    if ("%$#&_".includes(name)) return { node: operator(name) };
    if (/^[Bb]igg?[lrm]?$/.test(name)) return { node: fixed(this.delimiter()) };
    return this.construct(name);
  }

  construct(name) {
    switch (name) {
      case "frac": case "dfrac": case "tfrac": case "cfrac":
        return { node: make("mfrac", {}, this.argument(), this.argument()) };
      case "binom":
        return { node: group(operator("("), make("mfrac", { linethickness: "0" }, this.argument(), this.argument()), operator(")")) };
      case "sqrt": return { node: this.root() };
      case "text": case "textrm": case "textbf": case "textit": case "mbox": return { node: make("mtext", {}, this.raw().replace(/ /g, "\u00a0")) };
      case "mathrm": case "mathsf": case "mathtt": case "operatorname": {
        if (this.source[this.at] === "*") this.at++;
        const text = this.raw();
        return { node: make("mi", { mathvariant: "normal" }, text), limits: WITH_LIMITS.has(text) };
      }
      case "mathcal": case "mathit": case "mathscr": return { node: make("mi", {}, this.raw()) };
      case "mathbf": case "boldsymbol": case "bm": return { node: make("mi", { mathvariant: "normal" }, bold(this.raw())) };
      case "mathbb": return { node: make("mi", {}, DOUBLE.get(this.raw()) ?? this.unknown()) };
      case "boxed": return { node: make("mrow", { class: "boxed" }, this.argument()) };
      case "overset": case "stackrel": {
        const above = this.argument();
        return { node: make("mover", {}, this.argument(), above) };
      }
      case "underset": {
        const below = this.argument();
        return { node: make("munder", {}, this.argument(), below) };
      }
      case "underline": case "underbrace":
        return { node: make("munder", {}, this.argument(), operator(name === "underline" ? "_" : "⏟")), limits: name === "underbrace" };
      case "pmod": return { node: group(make("mtext", {}, "\u00a0(mod\u00a0"), this.argument(), fixed(")")) };
      case "middle": return { node: operator(this.delimiter(), { stretchy: "true" }) };
      case "left": return { node: this.fenced() };
      case "begin": return { node: this.environment() };
      default: return this.unknown();
    }
  }

  unknown() {
    throw new Unknown();
  }

  root() {
    this.space();
    if (this.source[this.at] !== "[") return make("msqrt", {}, this.argument());
    this.at++;
    const index = this.row(TO_BRACKET);
    this.at++;
    // Browsers make each root in an index twice as high as the last: twenty would be a million pixels.
    if (index.matches("mroot") || index.querySelector("mroot")) throw new Unknown();
    return make("mroot", {}, this.argument(), index);
  }

  delimiter() {
    this.space();
    const [sign, name] = this.take(/\\([A-Za-z]+|[{}|])|[()[\]|/.<>]/y);
    if (name !== undefined) return DELIMITERS.get(name) ?? this.unknown();
    return { ".": "", "<": "⟨", ">": "⟩" }[sign] ?? sign;
  }

  fenced() {
    const open = this.delimiter();
    const inside = this.row(TO_RIGHT);
    this.take(TO_RIGHT);
    return group(operator(open, { stretchy: "true" }), inside, operator(this.delimiter(), { stretchy: "true" }));
  }

  environment() {
    const name = this.raw();
    if (!TABLES.has(name) && !FENCES.has(name)) throw new Unknown();
    if (name === "array") this.raw();
    const rows = [[]];
    for (let end = ""; !end.startsWith("\\end");) {
      rows.at(-1).push(make("mtd", {}, this.row(TO_CELL)));
      [end] = this.take(TO_CELL);
      if (end !== "\\\\") continue;
      this.take(LENGTH);
      rows.push([]);
    }
    if (this.raw() !== name) throw new Unknown();
    if (rows.length > 1 && rows.at(-1).every((cell) => !cell.textContent)) rows.pop();
    const kind = /^(align|split)/.test(name) ? "aligned" : name === "cases" ? "cases" : "matrix";
    const body = make("mtable", { class: kind, displaystyle: String(kind === "aligned") }, ...rows.map((cells) => make("mtr", {}, ...cells)));
    if (!FENCES.has(name)) return body;
    const [open, close] = FENCES.get(name);
    return group(operator(open, { stretchy: "true" }), body, operator(close.trim(), { stretchy: "true" }));
  }
}

// An element, or null for what is not known here. `display`: on a line of its own.
export function drawFormula(source, display) {
  if (source.length > MAX_SOURCE) return null;
  try {
    return make("math", display ? { display: "block" } : {}, new Reader(source, display).row(TO_END));
  } catch (error) {
    if (error instanceof Unknown) return null;
    throw error;
  }
}
