// Charts in SVG, drawn at their actual size, and the same numbers as tables.

const HEIGHT = 190;
const MARGIN = { left: 46, right: 10, top: 10, bottom: 24 };

/// What became of requests, the newest last. The current second is left out: it would look like a drop.
function requestLines(series) {
  const lines = OUTCOMES.map(({ name, title }) => ({ name, title, values: series[name].slice(0, -1) }));
  return lines.filter(({ name, values }) => ["allowed", "denied"].includes(name) || values.some((value) => value > 0));
}

/// In the order in which they are stacked.
const OUTCOMES = [
  { name: "allowed", title: "allowed" },
  { name: "no_rule", title: "no rule" },
  { name: "denied", title: "denied" },
  { name: "undecided", title: "not decided" },
];

/// 1, 2 or 5 with zeros: the smallest such step that needs at most this many ticks.
function niceStep(most, steps) {
  const raw = most / steps;
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= raw);
}

/// For counts: `ticks` in nice steps, and how high up a value is, 0 to 1.
function fromZero(values) {
  const highest = Math.max(...values, 1);
  const step = niceStep(highest, 3);
  const steps = Math.ceil(highest / step);
  return { ticks: Array.from({ length: steps + 1 }, (_, index) => index * step), share: (value) => value / (steps * step) };
}

/// A logarithmic scale for durations: each tick is ten times the one below.
function byTens(values) {
  const known = values.filter((value) => value > 0);
  const low = Math.floor(Math.log10(Math.min(...known, 1e9)));
  const [from, to] = known.length > 0 ? [low, Math.max(low + 1, Math.ceil(Math.log10(Math.max(...known))))] : [0, 3];
  const ticks = Array.from({ length: to - from + 1 }, (_, index) => 10 ** (from + index));
  return { ticks, share: (value) => Math.max(0, (Math.log10(value) - from) / (to - from)) };
}

class Chart {
  constructor(container, { title, format, stacked }) {
    Object.assign(this, { container, title, format, stacked, data: null });
    this.readout = el("p", { class: "readout", hidden: true, "aria-hidden": "true" });
    this.drawing = svg("svg", { role: "img" });
    container.replaceChildren(this.drawing, this.readout);
    new ResizeObserver(() => this.draw()).observe(container);
    container.addEventListener("pointermove", (event) => this.point(event));
    container.addEventListener("pointerleave", () => this.point(null));
  }

  /// `lines` are `[{ name, values }]`: the newest value at `end`, `slotMs` apart, null where nothing is known. There is room
  /// for `slots`.
  show(data) {
    this.data = data;
    this.draw();
  }

  draw() {
    const width = this.container.clientWidth;
    if (!this.data || width === 0) return;
    const { lines, slots, slotMs, describe } = this.data;
    const inner = { width: width - MARGIN.left - MARGIN.right, height: HEIGHT - MARGIN.top - MARGIN.bottom };
    const filled = lines[0].values.length;
    const x = (slot) => MARGIN.left + (inner.width * slot) / slots;
    const heights = Array.from({ length: filled }, (_, slot) => lines.reduce((sum, line) => sum + line.values[slot], 0));
    const scale = this.stacked ? fromZero(heights) : byTens(lines.flatMap((line) => line.values));
    const y = (value) => MARGIN.top + inner.height * (1 - scale.share(value));
    this.geometry = { inner, x, slots, filled };
    const parts = [];
    for (const value of scale.ticks) {
      parts.push(svg("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(value), y2: y(value) }));
      const label = svg("text", { x: MARGIN.left - 8, y: y(value) + 4, "text-anchor": "end" });
      label.textContent = this.format(value);
      parts.push(label);
    }
    for (const share of width < 420 ? [0, 1] : [0, 0.25, 0.5, 0.75, 1]) {
      const anchor = share === 0 ? "start" : share === 1 ? "end" : "middle";
      const label = svg("text", { x: MARGIN.left + inner.width * share, y: HEIGHT - 6, "text-anchor": anchor });
      label.textContent = share === 1 ? "now" : `−${span((1 - share) * slots * slotMs)}`;
      parts.push(label);
    }
    const offset = slots - filled;
    const below = new Array(filled).fill(0);
    for (const { name, values } of lines) {
      const d = this.stacked ? area(values, below, offset, x, y) : steps(values, offset, x, y);
      if (d) parts.push(svg("path", { class: `${this.stacked ? "area" : "stroke"} ${name}`, d }));
    }
    this.cursor = svg("line", { class: "cursor", y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom, visibility: "hidden" });
    this.drawing.replaceChildren(...parts, this.cursor);
    this.drawing.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.drawing.setAttribute("height", HEIGHT);
    this.drawing.setAttribute("aria-label", `${this.title}: ${describe}`);
  }

  /// Shows the numbers under the pointer.
  point(event) {
    if (!this.geometry || !this.data) return;
    const { inner, x, slots, filled } = this.geometry;
    const left = event ? event.clientX - this.container.getBoundingClientRect().left : -1;
    const slot = Math.floor(((left - MARGIN.left) / inner.width) * slots);
    const index = slot - (slots - filled);
    const inside = event !== null && slot < slots && index >= 0;
    this.readout.hidden = !inside;
    this.cursor.setAttribute("visibility", inside ? "visible" : "hidden");
    if (!inside) return;
    const { lines, slotMs, end } = this.data;
    const at = new Date(end - (slots - slot) * slotMs);
    const numbers = lines.map(({ name, title, values }) => `${title ?? name} ${this.format(values[index])}`).join(", ");
    say(this.readout, `${(slotMs < 60_000 ? clock : minute).format(at)}  ${numbers}`);
    this.cursor.setAttribute("x1", x(slot + 0.5));
    this.cursor.setAttribute("x2", x(slot + 0.5));
  }
}

/// A stacked area in steps; the next one starts on top of it.
function area(values, below, offset, x, y) {
  if (values.length === 0 || values.every((value) => value === 0)) return "";
  const upper = values.map((value, slot) => value + below[slot]);
  const forth = upper.map((value, slot) => `L${x(offset + slot).toFixed(1)} ${y(value).toFixed(1)}H${x(offset + slot + 1).toFixed(1)}`);
  const back = below.map((value, slot) => `L${x(offset + slot + 1).toFixed(1)} ${y(value).toFixed(1)}H${x(offset + slot).toFixed(1)}`).reverse();
  upper.forEach((value, slot) => { below[slot] = value; });
  return `M${forth[0].slice(1)}${forth.slice(1).join("")}${back.join("")}Z`;
}

/// A line in steps, with gaps where nothing is known.
function steps(values, offset, x, y) {
  let drawing = false;
  return values.map((value, slot) => {
    if (value === null) {
      drawing = false;
      return "";
    }
    const start = drawing ? "L" : "M";
    drawing = true;
    return `${start}${x(offset + slot).toFixed(1)} ${y(value).toFixed(1)}H${x(offset + slot + 1).toFixed(1)}`;
  }).join("");
}

/// The last minute as bars, for a rule.
function sparkline(drawing, { allowed, denied, shadow_denied: would, annotated }, mode, slots = 60) {
  const last = (values) => values.slice(0, -1).slice(-slots);
  // What a shadow rule would deny has passed, and so has what a soft limit annotates. What is over a quota has passed if another
  // quota had room.
  const over = (slot) => would[slot] + annotated[slot] + (mode === "quota" ? denied[slot] : 0);
  const [passed, refused] = [last(allowed.map((value, slot) => value + over(slot))), last(mode === "quota" ? denied.map(() => 0) : denied)];
  const most = Math.max(1, ...passed.map((value, slot) => value + refused[slot]));
  const [x, y] = [(slot) => slot, (value) => 32 * (1 - value / most)];
  const below = new Array(passed.length).fill(0);
  const offset = slots - passed.length;
  const paths = [["allowed", passed], ["denied", refused]].map(([name, values]) =>
    svg("path", { class: `area ${name}`, d: area(values, below, offset, x, y) }));
  drawing.replaceChildren(...paths);
}

/// Sums of the newest slots, a row for each of `rows` spans.
function sums(values, size, rows) {
  const result = [];
  for (let end = values.length; end > 0 && result.length < rows; end -= size) {
    result.push(values.slice(Math.max(0, end - size), end));
  }
  return result;
}

