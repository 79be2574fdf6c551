// The view of traffic: how much, how fast, who is denied, and how the store is.

const BREAKER = {
  closed: ["fine", " answers"],
  half_open: ["half", ": breaker half-open, probing"],
  open: ["unreachable", ": breaker open, rules use their failure policy"],
};
/// How much time a chart can show, initially less; and how many slots make a row of its table.
const RANGES = {
  seconds: { slots: [60, 120, 300], slotMs: 1_000, size: 30, rows: 10 },
  minutes: { slots: [30, 60, 180, 360], slotMs: 60_000, size: 30, rows: 12 },
};
const KINDS = { abuse: "looks like abuse", too_low: "limit looks too low", mixed: "look closer", no_rule: "requests without a rule", quiet: "quiet", not_enough_data: "not enough data" };

const overview = {
  range: "seconds",
  charts: null,

  update(insight) {
    const { totals, latency, rules } = insight;
    $("view-traffic").setAttribute("aria-busy", "false");
    $("empty").hidden = totals.requests > 0;
    overview.offerExample(insight.example);
    for (const id of ["traffic-title", "latency-title"]) $(id).closest(".charts").hidden = totals.requests === 0;
    const part = (perSecond) => (totals.requests_per_second > 0 ? perSecond / totals.requests_per_second : 0);
    const share = part(totals.denied_per_second);
    say($("tile-rate"), rate(totals.requests_per_second));
    const lost = [[totals.shed, "shed"], [totals.error, "not decided"]].filter(([number]) => number > 0);
    say($("tile-rate-note"), [`${brief(totals.requests)} in all`, ...lost.map(([number, words]) => `${brief(number)} ${words}`)].join(", "));
    say($("tile-denied"), percent(share));
    const would = totals.shadow_denied > 0 ? `; shadow rules would deny ${brief(totals.shadow_denied)}` : "";
    const over = totals.annotated > 0 ? `; ${brief(totals.annotated)} annotated` : "";
    say($("tile-denied-note"), `${brief(totals.denied)} in all, ${percent(totals.share_denied)}${would}${over}`);
    $("tile-denied").classList.toggle("denied", share > 0);
    $("tile-no-rule").parentElement.hidden = totals.no_rule === 0;
    say($("tile-no-rule"), percent(part(totals.no_rule_per_second)));
    say($("tile-no-rule-note"), `${brief(totals.no_rule)} in all, ${percent(totals.no_rule / Math.max(1, totals.requests))}`);
    say($("tile-p50"), micros(latency.p50_us));
    say($("tile-p99"), micros(latency.p99_us));
    overview.attention(insight);
    overview.draw(insight);
    overview.ruleCards(insight);
    const recent = insight.violations.slice(0, 8);
    renew($("recent"), recent, () => violationTable("Recent violations", recent));
  },

  /// A curl command that one of the rules applies to.
  offerExample(attributes) {
    const body = JSON.stringify({ attributes }).replaceAll("'", "'\\''");
    say($("empty-command"), `curl -d '${body}' ${location.origin}/v1/check`);
  },

  /// The service does not answer, so nothing is known about its store.
  unanswered() {
    const state = $("store-state");
    if (state.dataset.now === "unanswered") return;
    state.dataset.now = "unanswered";
    state.className = "state unreachable";
    state.replaceChildren(icon("unreachable"), el("span", {}, "Service does not answer"));
  },

  store(store) {
    const [name, words] = BREAKER[store.breaker] ?? BREAKER.open;
    const kind = store.kind === "redis" ? "Redis" : store.kind === "memory" ? "Memory" : shown(store.kind);
    const state = $("store-state");
    if (state.dataset.now !== store.breaker + kind) {
      // That the service answers again is announced by itself.
      if (state.dataset.now && state.dataset.now !== "unanswered") announce(`${kind} store${words}`);
      state.dataset.now = store.breaker + kind;
      state.className = `state ${name}`;
      state.replaceChildren(icon(name), el("span", {}, `${kind} store${words}`));
    }
    const kept = store.keys !== null && store.keys !== undefined;
    say($("tile-store-name"), kept ? "Keys in memory" : `${kind}, p99`);
    say($("tile-store"), kept ? brief(store.keys) : micros(store.p99_us));
    say($("tile-store-note"), kept ? `of at most ${brief(store.max_keys)}` : `${plural(store.calls, "call")}, ${plural(store.errors, "error")}`);
    const facts = [
      ["Kind", kind],
      ["Breaker", store.breaker.replace("_", " ")],
      kept && ["Keys", `${count(store.keys)} of ${count(store.max_keys)}`],
      ["Instances", count(store.instances)],
      ["Errors", count(store.errors)],
      store.calls > 0 && ["Calls", `${count(store.calls)}, p50 ${micros(store.p50_us)}, p99 ${micros(store.p99_us)}`],
      store.leased_tokens > 0 && ["Leased tokens", count(store.leased_tokens)],
    ].filter(Boolean);
    each($("store-facts"), facts, ([title]) => title, ([title]) => {
      const value = el("dd");
      return { node: el("div", {}, el("dt", {}, title), value), update: ([, text]) => say(value, text) };
    });
  },

  /// What needs attention, the most harmful first.
  attention({ rules, findings }) {
    const order = ["abuse", "too_low", "no_rule", "mixed"];
    const ofRules = rules.filter((rule) => rule.finding).map((rule) => ({ name: rule.name, advice: rule.advice, ...rule.finding }));
    const found = [...ofRules, ...findings].filter(({ kind }) => order.includes(kind))
      .sort((a, b) => order.indexOf(a.kind) - order.indexOf(b.kind));
    $("attention").hidden = found.length === 0;
    each($("attention-list"), found, ({ kind, name }) => `${kind} ${name ?? ""}`, ({ kind, name }) => {
      const sentence = el("span", { class: "sentence" });
      const advice = el("span", { class: "advice" });
      const head = name === undefined ? el("a", { href: linkTo("rules") }, "Traffic without a rule:")
        : el("a", { href: linkTo("traffic", { rule: name }), onclick: () => ruleCard.open(name) }, shown(name));
      const node = el("li", { class: `finding ${kind}` }, icon(kind), el("span", {}, head, " ", sentence, " ", advice));
      return {
        node,
        update: (now) => {
          say(sentence, shown(now.sentence));
          renew(advice, now.advice ?? null, () => adviceButton(name, now.advice));
        },
      };
    });
    const words = found.map(({ kind, name }) => `${name ? `${name}: ` : ""}${KINDS[kind]}`).join("; ");
    if (overview.announced !== undefined && overview.announced !== words) announce(words || "Nothing needs attention now");
    overview.announced = words;
  },

  draw(insight) {
    overview.charts ??= {
      traffic: new Chart($("traffic-chart"), { title: "Requests", format: brief, stacked: true }),
      latency: new Chart($("latency-chart"), { title: "Latency", format: micros, stacked: false }),
    };
    const { slots: choices, slotMs, size, rows } = RANGES[overview.range];
    const end = Math.floor(Date.parse(insight.at) / slotMs) * slotMs;
    const per = overview.range === "seconds" ? "a second" : "a minute";
    const outcomes = requestLines(insight.requests[overview.range]);
    const slots = choices.find((choice) => choice >= outcomes[0].values.length) ?? choices.at(-1);
    const total = (values) => values.reduce((a, b) => a + b, 0);
    const said = outcomes.map(({ title, values }) => `${count(total(values))} ${title}`);
    const describe = `${said.slice(0, -1).join(", ")} and ${said.at(-1)} in the last ${span(slots * slotMs)}; a table follows`;
    overview.charts.traffic.show({ lines: outcomes, slots, slotMs, end, describe });
    each($("traffic-legend"), outcomes, ({ name }) => name, ({ name, title }) => ({ node: el("span", { class: name }, title) }));
    const [p50, p99] = ["p50_us", "p99_us"].map((name) => insight.latency[overview.range][name].slice(0, -1).slice(-slots));
    const lines = [{ name: "p50", values: p50 }, { name: "p99", values: p99 }];
    overview.charts.latency.show({ lines, slots, slotMs, end, describe: `p50 ${micros(insight.latency.p50_us)}, p99 ${micros(insight.latency.p99_us)} in the last minute; a table follows` });
    const ago = (index) => `${span((index + 1) * size * slotMs)} ago`;
    const open = (id) => $(id).closest("details").open;
    if (open("traffic-table")) {
      const columns = outcomes.map(({ title, values }) => ({ title: opening(title), parts: sums(values, size, rows) }));
      $("traffic-table").replaceChildren(table(`Requests, ${per}`, [
        { title: "From", cell: (index) => ago(index) },
        ...columns.map(({ title, parts }) => ({ title, number: true, cell: (index) => count(total(parts[index])) })),
      ], columns[0].parts.map((_, index) => index)));
    }
    if (open("latency-table")) {
      const worst = (values) => micros(values.reduce((a, b) => (b === null ? a : Math.max(a ?? 0, b)), null));
      const [half, most] = [sums(p50, size, rows), sums(p99, size, rows)];
      $("latency-table").replaceChildren(table("Latency, the highest of each span", [
        { title: "From", cell: ([index]) => ago(index) },
        { title: "p50", number: true, cell: ([index]) => worst(half[index]) },
        { title: "p99", number: true, cell: ([index]) => worst(most[index]) },
      ], half.map((_, index) => [index])));
    }
  },

  ruleCards({ rules, rules_loaded: loaded, observing, dropped }) {
    const notes = [
      rules.length < loaded && `the busiest ${count(rules.length)} of ${count(loaded)}`,
      !observing && "insight is off, so only totals are shown",
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
    $("empty-copy").addEventListener("click", async () => {
      await navigator.clipboard?.writeText($("empty-command").textContent).then(() => announce("Copied"), () => announce("Cannot copy; select the text"));
    });
  },
};

