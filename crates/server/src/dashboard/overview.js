// The view of traffic: how much, how fast, who is denied, and how the store is.

const BREAKER = {
  closed: ["fine", " answers"],
  half_open: ["half", ": breaker half open, one call tries"],
  open: ["away", ": breaker open, rules answer by their failure policy"],
};
/// How much time a chart can show, initially less; and how many slots make a row of its table.
const RANGES = {
  seconds: { slots: [60, 120, 300], slotMs: 1_000, size: 30, rows: 10 },
  minutes: { slots: [30, 60, 180, 360], slotMs: 60_000, size: 30, rows: 12 },
};
const KINDS = { abuse: "looks like abuse", too_low: "limit looks too low", mixed: "look closer", quiet: "quiet", not_enough_data: "too little to tell" };

const overview = {
  range: "seconds",
  charts: null,

  update(insight) {
    const { totals, latency, rules } = insight;
    $("view-traffic").setAttribute("aria-busy", "false");
    $("empty").hidden = totals.decisions > 0;
    for (const id of ["traffic-title", "latency-title"]) $(id).closest(".charts").hidden = totals.decisions === 0;
    const share = totals.decisions_per_second > 0 ? totals.denied_per_second / totals.decisions_per_second : 0;
    say($("tile-rate"), rate(totals.decisions_per_second));
    say($("tile-rate-note"), `${brief(totals.decisions)} in all`);
    say($("tile-denied"), percent(share));
    say($("tile-denied-note"), `${rate(totals.denied_per_second)} a second, ${brief(totals.denied)} in all`);
    $("tile-denied").classList.toggle("denied", share > 0);
    say($("tile-p50"), micros(latency.p50_us));
    say($("tile-p99"), micros(latency.p99_us));
    overview.attention(rules);
    overview.draw(insight);
    overview.ruleCards(insight);
    const recent = insight.violations.slice(0, 8);
    renew($("recent"), recent, () => violationTable("Recent violations", recent));
  },

  store(store) {
    const [name, words] = BREAKER[store.breaker] ?? BREAKER.open;
    const kind = store.kind === "redis" ? "Redis" : store.kind === "memory" ? "Memory" : shown(store.kind);
    const state = $("store-state");
    if (state.dataset.now !== store.breaker + kind) {
      if (state.dataset.now) announce(`${kind} store${words}`);
      state.dataset.now = store.breaker + kind;
      state.className = `state ${name}`;
      state.replaceChildren(icon(name), el("span", {}, `${kind} store${words}`));
    }
    const kept = store.keys !== null && store.keys !== undefined;
    say($("tile-store-name"), kept ? "Keys in memory" : `${kind}, 99 % below`);
    say($("tile-store"), kept ? brief(store.keys) : micros(store.p99_us));
    say($("tile-store-note"), kept ? `of at most ${brief(store.max_keys)}` : `${brief(store.calls)} calls, ${plural(store.errors, "error")}`);
    const facts = [
      ["Kind", kind],
      ["Breaker", store.breaker.replace("_", " ")],
      kept && ["Keys", `${count(store.keys)} of ${count(store.max_keys)}`],
      ["Instances", count(store.instances)],
      ["Errors", count(store.errors)],
      store.calls > 0 && ["Calls", `${count(store.calls)}, half below ${micros(store.p50_us)}, 99 % below ${micros(store.p99_us)}`],
      store.leased_tokens > 0 && ["Leased tokens", count(store.leased_tokens)],
    ].filter(Boolean);
    each($("store-facts"), facts, ([title]) => title, ([title]) => {
      const value = el("dd");
      return { node: el("div", {}, el("dt", {}, title), value), update: ([, text]) => say(value, text) };
    });
  },

  /// What needs attention, the most harmful first.
  attention(rules) {
    const order = ["abuse", "too_low", "mixed"];
    const found = rules.filter((rule) => order.includes(rule.finding?.kind))
      .sort((a, b) => order.indexOf(a.finding.kind) - order.indexOf(b.finding.kind));
    $("attention").hidden = found.length === 0;
    each($("attention-list"), found, (rule) => `${rule.finding.kind} ${rule.name}`, (rule) => {
      const kind = rule.finding.kind;
      const sentence = el("span", { class: "sentence" });
      const link = el("a", { href: "#traffic", onclick: (event) => { event.preventDefault(); ruleCard.open(rule.name); } }, shown(rule.name));
      const node = el("li", { class: `finding ${kind}` }, icon(kind), el("span", {}, link, " ", sentence));
      return { node, update: (now) => say(sentence, shown(now.finding.sentence)) };
    });
    const words = found.map((rule) => `${rule.name}: ${KINDS[rule.finding.kind]}`).join("; ");
    if (overview.told !== undefined && overview.told !== words) announce(words || "Nothing needs attention any more");
    overview.told = words;
  },

  draw(insight) {
    overview.charts ??= {
      traffic: new Chart($("traffic-chart"), { title: "Allowed and denied", format: brief, stacked: true }),
      latency: new Chart($("latency-chart"), { title: "Latency", format: micros, stacked: false }),
    };
    const { slots: choices, slotMs, size, rows } = RANGES[overview.range];
    const end = Math.floor(Date.parse(insight.at) / slotMs) * slotMs;
    const per = overview.range === "seconds" ? "a second" : "a minute";
    const sum = together(insight.rules, overview.range);
    const slots = choices.find((choice) => choice >= sum.allowed.length) ?? choices.at(-1);
    const total = (values) => values.reduce((a, b) => a + b, 0);
    const describe = `${count(total(sum.allowed))} allowed and ${count(total(sum.denied))} denied in the last ${span(slots * slotMs)}; a table follows`;
    overview.charts.traffic.show({ lines: [{ name: "allowed", values: sum.allowed }, { name: "denied", values: sum.denied }], slots, slotMs, end, describe });
    const [p50, p99] = ["p50_us", "p99_us"].map((name) => insight.latency[overview.range][name].slice(0, -1).slice(-slots));
    const lines = [{ name: "p50", values: p50 }, { name: "p99", values: p99 }];
    overview.charts.latency.show({ lines, slots, slotMs, end, describe: `half below ${micros(insight.latency.p50_us)}, 99 % below ${micros(insight.latency.p99_us)} in the last minute; a table follows` });
    const ago = (index) => `${span((index + 1) * size * slotMs)} ago`;
    const open = (id) => $(id).closest("details").open;
    if (open("traffic-table")) {
      const [allowed, denied] = [sums(sum.allowed, size, rows), sums(sum.denied, size, rows)];
      $("traffic-table").replaceChildren(table(`Allowed and denied, ${per}`, [
        { title: "From", cell: ([index]) => ago(index) },
        { title: "Allowed", number: true, cell: ([index]) => count(total(allowed[index])) },
        { title: "Denied", number: true, cell: ([index]) => count(total(denied[index])) },
      ], allowed.map((_, index) => [index])));
    }
    if (open("latency-table")) {
      const worst = (values) => micros(values.reduce((a, b) => (b === null ? a : Math.max(a ?? 0, b)), null));
      const [half, most] = [sums(p50, size, rows), sums(p99, size, rows)];
      $("latency-table").replaceChildren(table("Latency, the highest of each span", [
        { title: "From", cell: ([index]) => ago(index) },
        { title: "Half below", number: true, cell: ([index]) => worst(half[index]) },
        { title: "99 % below", number: true, cell: ([index]) => worst(most[index]) },
      ], half.map((_, index) => [index])));
    }
  },

  ruleCards({ rules, rules_loaded: loaded, observing, dropped }) {
    const notes = [
      rules.length < loaded && `the busiest ${count(rules.length)} of ${count(loaded)}`,
      !observing && "traffic is not observed, so there are totals only",
      dropped.decisions > 0 && `hot keys miss ${plural(dropped.decisions, "decision")}`,
    ].filter(Boolean);
    say($("rules-note"), notes.join("; "));
    each($("rule-cards"), rules, (rule) => rule.name, ruleCard.make);
    $("rules-title").closest("section").hidden = rules.length === 0;
  },

  start() {
    for (const button of document.querySelectorAll("[data-range]")) {
      button.addEventListener("click", () => {
        overview.range = button.dataset.range;
        for (const other of document.querySelectorAll("[data-range]")) other.setAttribute("aria-pressed", String(other === button));
        if (known.insight) overview.draw(known.insight);
      });
    }
    for (const id of ["traffic-table", "latency-table"]) {
      $(id).closest("details").addEventListener("toggle", () => known.insight && overview.draw(known.insight));
    }
    say($("empty-command"), `curl -d '{"attributes": {"user_id": "42", "ip": "203.0.113.9"}}' ${location.origin}/v1/check`);
    $("empty-copy").addEventListener("click", async () => {
      await navigator.clipboard?.writeText($("empty-command").textContent).then(() => announce("Copied"), () => announce("Cannot copy; select the text"));
    });
  },
};

