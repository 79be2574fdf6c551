// Numbers, spans and moments as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

const count = (number) => whole.format(number);
const brief = (number) => (Math.abs(number) < 10_000 ? whole.format(number) : compact.format(number));
const rate = (number) => (number < 100 ? tenth.format(number) : brief(number));
const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/// With a capital first letter.
const opening = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/// `100,000/s token bucket`.
const quota = (text) => shown(text).replaceAll("_", " ").replace(/\d{5,}/g, (digits) => count(Number(digits)));

/// Shows 100 % and 0 % only if they are exact.
function percent(share) {
  if (!Number.isFinite(share) || share <= 0) return "0 %";
  if (share >= 1) return "100 %";
  if (share < 0.001) return "< 0.1 %";
  if (share > 0.999) return "> 99.9 %";
  return `${tenth.format(share * 100)} %`;
}

function micros(us) {
  if (us === null || us === undefined) return "–";
  if (us < 1_000) return `${whole.format(us)} µs`;
  if (us < 1_000_000) return `${tenth.format(us / 1_000)} ms`;
  return `${tenth.format(us / 1_000_000)} s`;
}

/// `4.2 s`, `3 min 5 s`, `2 h 10 min`, `3 days 4 h`; with a decimal to keep the width of a countdown.
function span(ms, decimals = 0) {
  if (ms === null || ms === undefined) return "–";
  const seconds = ms / 1_000;
  const tenths = Math.ceil(seconds * 10) / 10;
  if (seconds < 10) return `${decimals ? tenths.toFixed(1) : tenths} s`;
  const rounded = Math.ceil(seconds);
  if (rounded < 60) return `${rounded} s`;
  const two = (large, small, a, b) => (small ? `${count(large)} ${a} ${small} ${b}` : `${count(large)} ${a}`);
  if (rounded < 3_600) return two(Math.floor(rounded / 60), rounded % 60, "min", "s");
  if (rounded < 86_400) return two(Math.floor(rounded / 3_600), Math.floor((rounded % 3_600) / 60), "h", "min");
  const days = Math.floor(rounded / 86_400);
  return two(days, Math.floor((rounded % 86_400) / 3_600), days === 1 ? "day" : "days", "h");
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const minute = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });

/// The time, with the day if it is not today; the exact time as a tooltip.
function moment(text) {
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return el("span", {}, shown(text));
  const today = at.toDateString() === new Date().toDateString();
  return el("time", { datetime: at.toISOString(), title: String(text) }, (today ? clock : day).format(at));
}

/// Whether all requests share one bucket of a rule: its key names no attribute.
function isForAll(rule) {
  return Boolean(rule?.key) && !rule.key.includes("{");
}
