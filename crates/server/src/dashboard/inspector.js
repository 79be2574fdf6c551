// Why is this client denied, and when will it pass?

const MOST_RULES = 40;
/// `CL.THROTTLE` has no rule whose buckets could be shown; it has a name that no rule can have.
const hasBuckets = (rule) => !rule.startsWith("(");
const FINGERPRINT = /^sha256:[0-9a-f]{16}$/;

/// More buckets than this are not asked for.
const MOST_BUCKETS = 20;
/// Something that can be looked up as an address or a network.
const ADDRESS = /^(?=.*[.:])[0-9a-fA-F.:]+(\/\d{1,3})?$/;

/// Whether a key is made of several parts and this is one of them: `acme:203.0.113.9` of `203.0.113.9`.
function isPart(whole, part) {
  const at = whole.indexOf(part);
  const inside = (c) => c !== undefined && /[\p{L}\p{N}.]/u.test(c);
  return part.length > 2 && at >= 0 && !inside(whole[at - 1]) && !inside(whole[at + part.length]);
}

const inspector = {
  /// What is inspected: `{ rule, key, buckets: [{ answer, at }] }`.
  now: null,
  ticking: null,

  /// What the address names: from a link, or after going back.
  arrive({ rule = "", key }) {
    const form = $("inspect");
    offerRules(form.elements.rule, inspector.names());
    if (key === undefined) return inspector.now && inspector.run();
    form.elements.key.value = key;
    form.elements.rule.value = inspector.names().includes(rule) ? rule : "";
    return inspector.submit();
  },

  names: () => (known.insight?.rules ?? []).map((rule) => rule.name).filter(hasBuckets),

  submit() {
    const { key, rule } = Object.fromEntries(new FormData($("inspect")));
    remember("keys", { rule, key });
    inspector.now = key ? { rule, key, buckets: [], read: false } : null;
    return inspector.run();
  },

  async run() {
    const now = inspector.now;
    if (!now) return;
    try {
      await exceptions.load();
      const past = await inspector.denials(now);
      const asked = inspector.candidates(now, past);
      const buckets = await Promise.all(asked.map(async ({ rule, key }) => {
        const answer = await api.get("/v1/keys", { rule, key });
        return { answer, at: performance.now(), denied: past.find((one) => one.rule === rule && one.key === key) };
      }));
      if (inspector.now !== now) return;
      Object.assign(now, { buckets, past, read: true });
      say($("inspect-error"), "");
      inspector.show();
    } catch (error) {
      if (error instanceof Refused && error.status === 401) return signIn.show();
      if (inspector.now === now) say($("inspect-error"), error.message);
    }
  },

  /// Denials of this key, and of requests with this address or user: the key of a rule may be made of several parts.
  async denials({ rule, key }) {
    const by = [{ key }, { user_id: key }, ADDRESS.test(key) && { ip: key }].filter(Boolean);
    const pages = await Promise.all(by.map((query) => api.get("/v1/violations", { ...query, rule, limit: 10 }).catch((error) => {
      // It looked like an address and is none.
      if (error instanceof Refused && error.status === 400 && query.ip) return { violations: [] };
      throw error;
    })));
    const found = new Map(pages.flatMap((page) => page.violations).map((one) => [one.id, one]));
    return [...found.values()].sort((a, b) => b.id - a.id).slice(0, 10);
  },

  /// The buckets that this may be about: the key itself under every rule, what was just denied, and keys that contain it.
  candidates({ rule, key }, past) {
    const rules = rule ? [rule] : inspector.names().slice(0, MOST_RULES);
    const hot = (known.insight?.rules ?? []).filter((one) => rules.includes(one.name)).flatMap((one) =>
      [...one.hot_by_denials, ...one.hot_by_traffic].filter((hot) => isPart(hot.key, key)).map((hot) => ({ rule: one.name, key: hot.key })));
    const more = [...past, ...hot].filter((one) => one.key !== key && hasBuckets(one.rule) && !one.key.startsWith("(") && !FINGERPRINT.test(one.key));
    const names = inspector.names();
    const different = new Map(more.filter((one) => names.includes(one.rule)).map((one) => [JSON.stringify([one.rule, one.key]), { rule: one.rule, key: one.key }]));
    return [...rules.map((name) => ({ rule: name, key })), ...[...different.values()].slice(0, MOST_BUCKETS)];
  },

  show() {
    const { key, rule, buckets, past } = inspector.now;
    const used = ({ answer, denied }) => (denied && answer.key !== key) || answer.remaining < answer.limit || answer.reset_after_ms > 0 || exceptions.of(answer).length > 0;
    const cards = rule ? buckets.filter((bucket) => bucket.answer.key === key || used(bucket)) : buckets.filter(used);
    // Those that deny first; the rest in the order of the rules.
    cards.sort((a, b) => inspector.denies(b) - inspector.denies(a));
    renew($("inspected"), { key, cards, past, exceptions: known.exceptions }, () =>
      [...cards.map(inspector.card), inspector.rest(cards.length, buckets.length, key, past), inspector.past(past)]);
    inspector.tick();
    clearInterval(inspector.ticking);
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    inspector.ticking = setInterval(inspector.tick, still ? 1_000 : 100);
  },

  denies: ({ answer }) => answer.retry_after_ms === null || answer.retry_after_ms > 0,

  card(bucket) {
    const { answer } = bucket;
    const denied = inspector.denies(bucket);
    // An exception for the rule itself takes precedence over one for every rule.
    const [exception] = exceptions.of(answer).sort((a, b) => (a.rule === "*") - (b.rule === "*"));
    const refused = exception?.kind === "block" || (denied && exception?.kind !== "allow");
    const states = { block: "Blocked by an exception", allow: "Let pass by an exception" };
    const state = states[exception?.kind] ?? (denied ? "Denied now" : "Passes now");
    const counts = denied && !states[exception?.kind];
    const bar = svg("svg", { class: "level", viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("rect", { class: "track", width: 100, height: 4 }), svg("rect", { class: refused ? "denied" : "allowed", width: answer.limit > 0 ? (100 * answer.remaining) / answer.limit : 0, height: 4 }));
    return el("section", { class: `card bucket ${refused ? "denied" : "allowed"}`, "aria-label": `Bucket of rule ${shown(answer.rule)}, key ${shown(answer.key)}` },
      el("div", { class: "head" }, el("h3", {}, shown(answer.rule)), answer.scope ? el("span", { class: "chip" }, shown(answer.scope)) : "",
        answer.key === inspector.now.key ? "" : el("span", { class: "note" }, "key ", foreign(answer.key, "b"))),
      el("p", { class: "verdict" }, icon(refused ? "denied" : "fine"), el("b", {}, state),
        el("span", { class: "countdown", "data-until": counts && answer.retry_after_ms !== null ? String(bucket.at + answer.retry_after_ms) : undefined },
          counts && answer.retry_after_ms === null ? "and can never pass at this limit" : "")),
      bar,
      el("dl", { class: "pairs" },
        answer.by ? inspector.pair("Key by", shown(answer.by)) : "",
        inspector.pair("Left", `${count(answer.remaining)} of ${count(answer.limit)}`),
        inspector.pair("Quota", quota(answer.quota)),
        inspector.pair("Full again", answer.reset_after_ms > 0 ? el("span", { "data-reset": String(bucket.at + answer.reset_after_ms) }) : "now"),
        (answer.variants ?? []).map((one) => inspector.pair(`By ${shown(one.by)}`, `${count(one.remaining)} left, ${one.retry_after_ms ? `passes in ${span(one.retry_after_ms)}` : "passes"}`))),
      el("p", { class: "why" }, inspector.why(answer, denied, exception?.kind)),
      ...exceptions.list(answer),
      el("div", { class: "actions" },
        el("button", { type: "button", "data-key": `reset ${answer.rule}`, onclick: () => inspector.reset(answer) }, "Reset bucket…"),
        ...exceptions.buttons(answer)));
  },

  pair: (title, value) => el("div", {}, el("dt", {}, title), el("dd", {}, value)),

  why({ rule: name, key, quota: written }, denied, exception) {
    const rule = known.insight?.rules.find((one) => one.name === name);
    const hot = rule?.hot_by_denials.find((one) => one.key === key && !one.blocked);
    const excepted = { block: "An exception denies every request of this key, whatever it has left.", allow: "An exception lets every request of this key pass, and charges nothing." };
    const parts = [excepted[exception] ?? (denied
      ? `The limit is ${quota(written)} ${isForAll(rule) ? "for all together" : `for each ${rule?.key ?? "key"}`}, and this key has used all of it. Denied requests are not charged.`
      : "A request of cost 1 passes this rule.")];
    if (rule?.mode === "shadow") parts.push("The rule is in shadow mode: it reports and never denies.");
    if (rule?.mode === "annotate") parts.push("The rule is a soft limit: requests over it pass, marked for the upstream.");
    if (rule?.mode === "quota") parts.push("The rule is one of several quotas: a request is denied only if all of them are over.");
    if (rule && !rule.active) parts.push("The rule is inactive.");
    if (hot) {
      const waits = hot.waits_kept + hot.waits_broken;
      parts.push(`It was denied ${hot.count === 1 ? "once" : `${ruleCard.bounds(hot)} times`} lately${waits > 0 ? ` and kept ${count(hot.waits_kept)} of ${plural(waits, "wait")}: it ${hot.waits_broken > hot.waits_kept ? "retries without waiting" : "mostly waits before retrying"}` : ""}.`);
    }
    return shown(parts.join(" "));
  },

  rest(shownCards, asked, key, past) {
    if (FINGERPRINT.test(key)) {
      return el("p", { class: "card warning" }, "This key is a secret, known here by its fingerprint only. To see its bucket, type the key itself.");
    }
    if (shownCards > 0) return "";
    if (past.length > 0) {
      return el("p", { class: "card nothing" }, `No bucket of this key is in use now. It was last denied at `, moment(past[0].at), `, by rule ${shown(past[0].rule)}.`);
    }
    return el("p", { class: "card nothing" }, `No bucket of this key is in use under ${plural(asked, "rule")}, and no denial of it is on record: its next request passes.`);
  },

  past: (past) => el("section", { class: "card", "aria-labelledby": "past-title" },
    el("h3", { id: "past-title" }, "Denials of this key, address or user"), violationTable("Denials of this key, address or user", past, "There are none.")),

  /// Updates the countdowns; at zero the bucket is inspected again.
  tick() {
    const now = performance.now();
    let over = false;
    for (const node of document.querySelectorAll("#inspected [data-until]")) {
      const left = Number(node.dataset.until) - now;
      say(node, left > 0 ? `passes in ${span(left, 1)}` : "passes now");
      if (left <= 0 && !node.dataset.over) over = node.dataset.over = "yes";
    }
    for (const node of document.querySelectorAll("#inspected [data-reset]")) {
      say(node, Number(node.dataset.reset) > now ? `in ${span(Number(node.dataset.reset) - now, 1)}` : "now");
    }
    if (over) inspector.run();
  },

  reset({ rule, key, by }) {
    ask({
      title: "Reset this bucket?",
      body: el("p", {}, "The key ", foreign(key, "b"), " of rule ", el("b", {}, shown(rule)), " starts with a full bucket again: its next requests pass, up to the whole burst."),
      ok: "Reset",
      danger: true,
      act: async () => {
        const { reset } = await api.delete("/v1/keys", { rule, key, by });
        announce(reset ? "The bucket was reset" : "There was nothing to reset");
        await inspector.run();
      },
    });
  },

  start() {
    $("inspect").addEventListener("submit", (event) => { event.preventDefault(); inspector.submit(); });
  },
};

