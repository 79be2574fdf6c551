"use strict";
// Draws the report that is embedded in this page. Keys and paths come from clients: only text is set, never markup.
const report = JSON.parse(document.getElementById("report").textContent);
const page = document.getElementById("page");
const SVG = "http://www.w3.org/2000/svg";

const grouped = (number) => Math.round(number).toLocaleString("en-US");
const counted = (number, what) => `${grouped(number)} ${what}${number === 1 ? "" : "s"}`;
const share = (part) => {
  const percent = part * 100;
  if (percent === 0) return "0 %";
  if (percent >= 100) return "100 %";
  if (percent >= 99.9) return "over 99.9 %";
  if (percent < 0.001) return "under 0.001 %";
  return `${percent.toFixed(percent < 0.01 ? 3 : percent < 1 ? 2 : percent < 10 || percent >= 99 ? 1 : 0)} %`;
};
const lasting = (micros) => {
  if (micros < 1e6) return `${Math.round(micros / 1e3)} ms`;
  if (micros < 60e6) return `${(micros / 1e6).toFixed(1)} s`;
  if (micros < 3600e6) return `${Math.round(micros / 60e6)} min`;
  return `${(micros / 3600e6).toFixed(1)} h`;
};
const moment = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ");

function node(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}
function shape(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// A table whose columns sort: { title, of (what to sort by), show (what to see), number }.
function table(columns, rows, label) {
  const body = node("tbody");
  const heads = columns.map((column, place) => {
    const button = node("button", { type: "button" }, column.title);
    const head = node("th", column.number ? { class: "number", scope: "col" } : { scope: "col" }, button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      fill([...rows].sort((a, b) => {
        const [x, y] = [columns[place].of(a), columns[place].of(b)];
        return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
      }));
    });
    return head;
  });
  function fill(sorted) {
    body.replaceChildren(...sorted.map((row) => node("tr", {}, ...columns.map((column) => {
      const cell = node("td", column.class || column.number ? { class: column.class || "number" } : {});
      const shown = (column.show || column.of)(row);
      cell.append(shown instanceof Node ? shown : String(shown));
      return cell;
    }))));
  }
  fill(rows);
  return node("div", { class: "scroll" }, node("table", { "aria-label": label }, node("thead", {}, node("tr", {}, ...heads)), body));
}

function keysTable(keys, what, label) {
  return table([
    { title: "key", of: (one) => one.key, class: "key" },
    { title: what, of: (one) => one.requests, show: (one) => grouped(one.requests), number: true },
    { title: "share", of: (one) => one.share, show: (one) => share(one.share), number: true },
    { title: "busiest second", of: (one) => one.most[0], show: (one) => grouped(one.most[0]), number: true },
    { title: "minute", of: (one) => one.most[1], show: (one) => grouped(one.most[1]), number: true },
    { title: "hour", of: (one) => one.most[2], show: (one) => grouped(one.most[2]), number: true },
    { title: "looks like", of: (one) => (one.suspect ? one.suspect.looks_like : ""), show: looksLike, class: "looks" },
  ], keys, label);
}
function looksLike(key) {
  if (key.suspect) {
    return node("span", {}, node("span", { class: "tag" }, key.suspect.looks_like.replaceAll("_", " ")), `: ${key.suspect.evidence}`);
  }
  return node("span", { class: "soft" }, key.agents >= 20 ? `${key.agents} user agents: many people behind it?` : "");
}

// Requests over time, those denied in front.
function overTime(timeline, label) {
  const [width, height] = [900, 150];
  const most = Math.max(1, ...timeline.spans.map((span) => span.requests));
  const step = width / Math.max(1, timeline.spans.length);
  const svg = shape("svg", { class: "stretched", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label });
  timeline.spans.forEach((span, place) => {
    for (const [count, name] of [[span.requests, "bar-pass"], [span.denied, "bar-deny"]]) {
      if (count === 0) continue;
      const tall = Math.max(1, (count / most) * height);
      const bar = shape("rect", { class: name, x: place * step, y: height - tall, width: Math.max(step - 0.4, 0.6), height: tall });
      bar.append(shape("title", {}, `${moment(timeline.begins + place * timeline.seconds)} UTC: ${counted(span.requests, "request")}, ${grouped(span.denied)} denied`));
      svg.append(bar);
    }
  });
  svg.append(shape("line", { class: "axis", x1: 0, x2: width, y1: height, y2: height }));
  const ends = timeline.begins + timeline.spans.length * timeline.seconds;
  return node("div", {},
    node("div", { class: "soft small" }, `up to ${grouped(most)} in ${lasting(timeline.seconds * 1e6)}`), svg,
    node("div", { class: "ends soft small" }, node("span", {}, moment(timeline.begins)), node("span", {}, `${moment(ends)} UTC`)));
}

// Keys by their busiest second, minute or hour, in powers of two, with the limit drawn in.
function byRate(quantiles, unit, limit, label) {
  const powers = quantiles.keys_up_to_powers_of_two;
  const [width, height, foot] = [440, 130, 34];
  const bars = Math.max(powers.length, limit ? Math.ceil(Math.log2(limit)) + 2 : 0, 4);
  const step = width / bars;
  const most = Math.log1p(Math.max(1, ...powers));
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height + foot}`, role: "img", "aria-label": label });
  powers.forEach((keys, power) => {
    if (keys === 0) return;
    const tall = Math.max(2, (Math.log1p(keys) / most) * (height - 16));
    const bar = shape("rect", { class: "bar-keys", x: power * step + 1, y: height - tall, width: step - 2, height: tall, rx: 2 });
    bar.append(shape("title", {}, `${counted(keys, "key")} with up to ${grouped(2 ** power)}`));
    svg.append(bar, shape("text", { x: (power + 0.5) * step, y: height - tall - 3, "text-anchor": "middle" }, keys >= 1e4 ? `${grouped(keys / 1e3)}k` : grouped(keys)));
  });
  for (let power = 0; power < bars; power += 1) {
    if (bars > 12 && power % 2 === 1) continue;
    const count = 2 ** power;
    const text = count >= 1e6 ? `${count / 2 ** 20}M` : count >= 1e4 ? `${Math.round(count / 1e3)}k` : String(count);
    svg.append(shape("text", { x: (power + 0.5) * step, y: height + 14, "text-anchor": "middle" }, text));
  }
  svg.append(shape("line", { class: "axis", x1: 0, x2: width, y1: height, y2: height }));
  svg.append(shape("text", { x: width, y: height + 30, "text-anchor": "end" }, `up to so many requests in its busiest ${unit}; height is logarithmic`));
  if (limit) {
    const x = Math.min(width, (Math.log2(limit) + 1) * step);
    svg.append(shape("line", { class: "limit", x1: x, x2: x, y1: 12, y2: height }));
    const atEnd = x > width * 0.7;
    svg.append(shape("text", { class: "limit-text", x: x + (atEnd ? -4 : 4), y: 10, "text-anchor": atEnd ? "end" : "start" }, `limit ${grouped(limit)}`));
  }
  return svg;
}

function heat(week) {
  const days = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
  const most = Math.max(1, ...week.flat().map((hour) => hour.requests));
  const grid = node("div", { class: "heat", role: "img", "aria-label": "Requests by day of the week and hour, in UTC" });
  grid.append(node("span"), ...Array.from({ length: 24 }, (_, hour) => node("span", { class: "hour" }, String(hour))));
  week.forEach((hours, day) => {
    grid.append(node("span", {}, days[day]));
    hours.forEach((hour, place) => {
      const strength = hour.requests === 0 ? 0 : 0.12 + 0.88 * (hour.requests / most);
      grid.append(node("i", {
        style: `background: rgb(var(--heat) / ${strength.toFixed(3)})`,
        title: `${days[day]} ${place}:00 UTC: ${counted(hour.requests, "request")}, ${grouped(hour.denied)} denied`,
      }));
    });
  });
  return grid;
}

const legend = () => node("div", { class: "legend" },
  node("span", {}, node("i", { style: "background: var(--pass-soft)" }), "requests"),
  report.denied === null ? null : node("span", {}, node("i", { style: "background: var(--deny)" }), "would have been denied"));

function ruleCard(rule) {
  const card = node("section", { class: "card" }, node("h3", {}, `${rule.rule}: ${rule.limit}${rule.mode === "enforce" ? "" : ` (${rule.mode})`}`));
  if (!rule.tried) {
    card.append(node("p", { class: "soft" }, "Not tried: a log does not say when requests end."));
    return card;
  }
  const about = rule.keys.exact ? "" : "about ";
  card.append(node("p", {}, `Denies ${grouped(rule.denied)} of ${counted(rule.keys.requests, "request")} (${share(rule.denied / Math.max(1, rule.keys.requests))}) ` +
    `and ${about}${grouped(rule.keys_denied)} of ${counted(rule.keys.keys, "key")} (${share(rule.share_of_keys_denied)}).`));
  card.append(node("p", { class: `finding ${rule.finding.kind}` }, rule.finding.sentence));
  if (rule.waits) {
    card.append(node("p", { class: "soft small" }, `Waits: half up to ${lasting(rule.waits.p50_us)}, 99 % up to ${lasting(rule.waits.p99_us)}` +
      `${rule.worst ? `; most denials at ${moment(rule.worst[0])} UTC` : ""}.`));
  }
  card.append(legend(), overTime(rule.timeline, `Requests of rule ${rule.rule} over time`));
  const unit = ["second", "minute", "hour"][rule.rate];
  const limit = Number(rule.limit.split("/")[0].replaceAll(",", ""));
  const instead = table([
    { title: "at most denied", of: (one) => one.at_most, show: (one) => share(one.at_most) },
    { title: "limit", of: (one) => one.written },
    { title: "keys", of: (one) => one.share_of_keys_denied, show: (one) => share(one.share_of_keys_denied), number: true },
    { title: "requests", of: (one) => one.share_of_requests_denied, show: (one) => share(one.share_of_requests_denied), number: true },
  ], rule.instead, `Alternative limits for ${rule.rule}`);
  card.append(node("div", { class: "two" },
    node("div", {}, node("h3", {}, "Keys by rate"), byRate(rule.keys.rates[unit], unit, limit, `Keys of rule ${rule.rule} by rate`)),
    node("div", {}, node("h3", {}, "Alternative limits"), instead)));
  if (rule.who.length > 0) card.append(node("h3", {}, "Who"), keysTable(rule.who, "denied", `Keys that ${rule.rule} denies`));
  return card;
}

const tile = (value, what) => node("div", { class: "tile" }, node("b", {}, value), node("span", {}, what));
const section = (title, ...children) => page.append(node("h2", {}, title), ...children);

function routesTable(routes, label) {
  return table([
    { title: "route", of: (one) => one.route, class: "key" },
    { title: "requests", of: (one) => one.requests, show: (one) => grouped(one.requests), number: true },
    { title: "share", of: (one) => one.share, show: (one) => share(one.share), number: true },
    { title: "4xx", of: (one) => one.refused, show: (one) => grouped(one.refused), number: true },
    { title: "5xx", of: (one) => one.failed, show: (one) => grouped(one.failed), number: true },
  ], routes, label);
}

const read = report.read;
page.append(node("h1", {}, report.rules.length > 0 ? "What these rules would have done" : "Who sends how much, and which limits to set"));
page.append(node("p", { class: "soft" }, `${moment(read.first_us / 1e6)} to ${moment(read.last_us / 1e6)} UTC, format ${read.formats.map((one) => one[0]).join(", ")}`));
const tiles = node("div", { class: "tiles" }, tile(grouped(read.requests), "requests"));
if (report.clients.length > 0) tiles.append(tile(grouped(report.clients[0].keys), "addresses"));
if (report.denied !== null) {
  tiles.append(tile(share(report.denied / Math.max(1, read.requests)), `denied: ${grouped(report.denied)}`));
  if (report.no_rule) tiles.append(tile(share(report.no_rule.share), "without a rule"));
}
tiles.append(tile(grouped(report.suspects.length), "look like bots"));
if (read.unreadable > 0) tiles.append(tile(grouped(read.unreadable), "lines not read"));
page.append(tiles);

section("Over time", legend(), overTime(report.timeline, "All requests over time"));
for (const rule of report.rules.length > 0 ? [null, ...report.rules] : []) {
  if (rule === null) page.append(node("h2", {}, "Rules"));
  else page.append(ruleCard(rule));
}
if (report.suggestion) {
  section("Suggested limits", ...report.suggestion.rules.map((rule) => node("section", { class: "card" },
    node("h3", {}, `${rule.name}: ${rule.written} by ${rule.key}`),
    rule.paths.length > 0 ? node("p", { class: "soft" }, `on ${rule.paths.join(", ")}`) : null,
    node("ul", {}, ...rule.evidence.map((line) => node("li", {}, line))))));
  page.append(node("details", {}, node("summary", {}, "The rules file"), node("pre", {}, report.suggestion.yaml)));
}
if (report.compared) {
  const compared = report.compared;
  section("With the other rules", node("p", {}, `${grouped(compared.denied_with_other)} denied instead of ${grouped(compared.denied)}.`),
    node("h3", {}, `Gain: ${counted(compared.gained, "request")}`), keysTable(compared.gaining, "passing", "Who gains"),
    node("h3", {}, `Lose: ${counted(compared.lost, "request")}`), keysTable(compared.losing, "denied", "Who loses"),
    ...compared.rules.map(ruleCard));
}
section("Hours of the week", node("p", { class: "soft small" }, "In UTC; the stronger the colour, the busier."), heat(report.week));
for (const keys of report.clients) {
  section(`By ${keys.name}`, node("p", { class: "soft" }, `${keys.exact ? "" : "About "}${counted(keys.keys, "key")}, ${counted(keys.requests, "request")}.` +
    `${keys.exact ? "" : ` Shares of keys are within ${share(keys.error_of_share)} (one standard error).`}`),
  node("div", { class: "two" },
    node("div", {}, node("h3", {}, "In its busiest second"), byRate(keys.rates.second, "second", 0, `By ${keys.name}: keys by their busiest second`)),
    node("div", {}, node("h3", {}, "In its busiest minute"), byRate(keys.rates.minute, "minute", 0, `By ${keys.name}: keys by their busiest minute`))),
  keysTable(keys.busiest, "requests", `Busiest by ${keys.name}`));
}
if (report.suspects.length > 0) section("Bots and scanners that stand out", keysTable(report.suspects, "requests", "Bots and scanners"));
section("Routes", routesTable(report.routes, "Routes"));
if (report.no_rule && report.no_rule.requests > 0) {
  section(`No rule applies to ${counted(report.no_rule.requests, "request")} (${share(report.no_rule.share)})`, routesTable(report.no_rule.routes, "Routes without a rule"));
}
const notes = [...report.notes, ...read.broken];
if (read.unreadable > 0) notes.push(...read.first_unreadable.map((bad) => `${bad.source}:${bad.line}: ${bad.reason}`));
if (read.too_late > 0) notes.push(`${counted(read.too_late, "line")} came too late to be sorted in`);
if (notes.length > 0) section("Notes", node("ul", {}, ...notes.map((note) => node("li", {}, note))));
page.append(node("p", { class: "soft small" }, "Made by tollkeeper tune."));
// On paper nothing can be opened.
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
