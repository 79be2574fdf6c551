// A rule with its traffic, the finding and its evidence, and its hot keys.

/// What becomes of requests over a rule's limit, by its mode: what passed is never called denied.
const OVER = {
  enforce: { verb: "denied", of: "denied", all: "Denied", keys: "Keys denied" },
  shadow: { verb: "would deny", of: "shadow_denied", all: "Would be denied", keys: "Keys that would be denied" },
  annotate: { verb: "annotated", of: "annotated", all: "Annotated", keys: "Keys over the limit" },
  quota: { verb: "over quota", of: "denied", all: "Over this quota", keys: "Keys over this quota" },
};

const ruleCard = {
  make(rule) {
    const id = `rule-${encodeURIComponent(rule.name)}`;
    const part = {
      chips: el("span", { class: "chips" }),
      limit: el("p", { class: "limit" }),
      drawing: svg("svg", { class: "spark", viewBox: "0 0 60 32", preserveAspectRatio: "none", "aria-hidden": "true" }),
      allowed: el("dd"), denied: el("dd"), total: el("dd"), of: el("dd", { class: "note" }),
      deniedTitle: el("dt"), totalTitle: el("dt"),
      advice: el("p", { class: "advice" }),
      finding: el("p", { class: "finding" }),
      evidence: el("dl", { class: "pairs" }),
      traffic: el("div"), denials: el("div"),
    };
    part.details = el("details", { ontoggle: () => part.last && ruleCard.more(part, part.last) },
      el("summary", {}, "Evidence and hot keys", el("span", { class: "unseen" }, ` of ${shown(rule.name)}`)),
      part.evidence, el("div", { class: "hot" }, part.traffic, part.denials));
    const node = el("article", { class: "card rule", id, "aria-labelledby": `${id}-name`, tabindex: "-1" },
      el("div", { class: "head" }, el("h4", { id: `${id}-name` }, shown(rule.name)), part.chips),
      part.limit, part.drawing,
      el("dl", { class: "numbers" },
        el("div", {}, el("dt", { class: "allowed" }, "allowed a second"), part.allowed),
        el("div", {}, part.deniedTitle, part.denied),
        el("div", {}, part.totalTitle, part.total, part.of)),
      part.finding, part.advice, part.details);
    part.node = node;
    part.update = (now) => ruleCard.update(part, now);
    return part;
  },

  update(part, rule) {
    part.last = rule;
    const enforced = rule.mode === "enforce";
    const chips = [rule.scope && shown(rule.scope), !enforced && shown(rule.mode), !rule.active && "off"].filter(Boolean);
    each(part.chips, chips, (chip) => chip, (chip) => ({ node: el("span", { class: "chip" }, chip) }));
    const limit = `${rule.limit} by ${rule.key}`;
    if (part.limit.dataset.now !== limit) {
      part.limit.dataset.now = limit;
      const whose = isForAll(rule) ? [" for all together"] : [" for each ", el("code", {}, shown(rule.key))];
      part.limit.replaceChildren(el("b", {}, quota(rule.limit)), ...whose);
    }
    sparkline(part.drawing, rule.seconds, rule.mode);
    say(part.allowed, rate(rule.allowed_per_second));
    const { verb, of } = OVER[rule.mode] ?? OVER.enforce;
    say(part.deniedTitle, `${verb} a second`);
    // Only what is denied is drawn.
    part.deniedTitle.className = enforced ? "denied" : "";
    say(part.totalTitle, `${verb} of all`);
    say(part.denied, rate(rule[`${of}_per_second`]));
    const all = rule.allowed + rule.denied + rule.shadow_denied + rule.annotated;
    say(part.total, all > 0 ? percent(rule[of] / all) : "–");
    say(part.of, all > 0 ? `of ${plural(all, "decision")}` : "");
    const { kind, sentence } = rule.finding ?? { kind: "not_enough_data", sentence: "no request yet" };
    if (part.finding.dataset.now !== kind + sentence) {
      part.finding.dataset.now = kind + sentence;
      part.finding.className = `finding ${kind}`;
      part.finding.replaceChildren(icon(kind), el("span", {}, el("span", { class: "unseen" }, `${KINDS[kind]}: `), el("span", { class: "sentence" }, opening(shown(sentence)))));
    }
    renew(part.advice, rule.advice, () => adviceButton(rule.name, rule.advice));
    part.advice.hidden = !rule.advice;
    part.details.hidden = !rule.finding;
    if (part.details.open) ruleCard.more(part, rule);
  },

  /// The collapsed part, updated only while it is open.
  more(part, rule) {
    const evidence = rule.finding?.evidence;
    const over = OVER[evidence?.mode] ?? OVER.enforce;
    const about = (number) => `${evidence.exact ? "" : "about "}${count(number)}`;
    const facts = evidence ? [
      ["Looks back", span(evidence.seconds * 1_000)],
      ["Requests", count(evidence.requests)],
      [over.all, `${count(evidence.denied)} (${percent(evidence.requests > 0 ? evidence.denied / evidence.requests : 0)})`],
      evidence.blocked > 0 && ["Denied as blocked", count(evidence.blocked)],
      ["Keys", about(evidence.keys)],
      [over.keys, `${about(evidence.keys_denied)} (${percent(evidence.share_of_keys_denied)})`],
      evidence.few && [over === OVER.enforce ? "Most denials" : "Most of them", `${percent(evidence.few.share)} from ${plural(evidence.few.keys, "key")}`],
      typeof evidence.share_hammering === "number" && ["Retry without waiting", `${percent(evidence.share_hammering)} of denied keys`],
      evidence.enough && ["Would have been enough", `${shown(evidence.enough.written)}, ${tenth.format(evidence.enough.times)} times the limit`],
    ].filter(Boolean) : [];
    each(part.evidence, facts, ([title]) => title, ([title]) => {
      const value = el("dd");
      return { node: el("div", {}, el("dt", {}, title), value), update: ([, text]) => say(value, text) };
    });
    ruleCard.hot(part.traffic, "Most requests", rule, rule.hot_by_traffic);
    ruleCard.hot(part.denials, rule.mode === "enforce" ? "Most denials" : "Most over the limit", rule, rule.hot_by_denials);
  },

  hot(place, title, rule, keys) {
    const waits = keys.some((key) => key.waits_kept + key.waits_broken > 0);
    const columns = [
      { title: "Key", cell: (key) => (key.blocked ? el("span", {}, keyLink(rule.name, key.key), el("span", { class: "chip" }, "blocked")) : keyLink(rule.name, key.key)) },
      { title: "Count", number: true, cell: (key) => ruleCard.bounds(key) },
      waits && { title: "Waits kept", number: true, cell: (key) => (key.waits_kept + key.waits_broken > 0 ? `${count(key.waits_kept)} of ${count(key.waits_kept + key.waits_broken)}` : "–") },
    ].filter(Boolean);
    renew(place, keys, () => [el("h5", {}, title), keys.length > 0 ? table(`${title} of ${shown(rule.name)}`, columns, keys) : el("p", { class: "note" }, "none")]);
  },

  /// `90 to 120` where a count is not exact.
  bounds: ({ count: most, error }) => (error > 0 ? `${brief(most - error)} to ${brief(most)}` : brief(most)),

  open(name) {
    const card = $(`rule-${encodeURIComponent(name)}`);
    if (!card) return;
    card.querySelector("details").open = true;
    card.scrollIntoView({ block: "start" });
    card.focus({ preventScroll: true });
  },
};

/// A key that links to the inspector.
function keyLink(rule, key) {
  if (!hasBuckets(rule)) return foreign(key);
  return el("a", { class: "key", "data-key": key, title: shown(key), href: linkTo("keys", { rule, key }) },
    el("span", { class: "unseen" }, "Inspect "), foreign(key));
}

/// What would help, as a button that opens the change with everything filled in.
function adviceButton(rule, advice) {
  if (advice?.action === "set_limit") {
    const burst = advice.burst && advice.burst !== Number(advice.limit.replaceAll(",", "").split("/")[0]) ? ` with burst ${count(advice.burst)}` : "";
    const change = { edit: rule, limit: advice.limit, burst: advice.burst };
    return el("a", { class: "button", href: linkTo("rules", change) }, `Set ${shown(advice.limit)}${burst}…`);
  }
  if (advice?.action === "block" && known.routes?.has("/v1/exceptions")) {
    const words = advice.keys.length === 1 ? "Block this key…" : `Block these ${advice.keys.length} keys…`;
    return el("button", { type: "button", onclick: () => exceptions.blockAll(rule, advice) }, words);
  }
  return [];
}

