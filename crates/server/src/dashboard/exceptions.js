// Exceptions for single keys: block, allow or grant, where the service can make them.

const EXCEPTIONS = {
  block: { title: "Block", done: "is blocked", danger: true, says: "Every request of this key is denied, whatever it has left." },
  allow: { title: "Let pass", done: "always passes", says: "Every request of this key passes, and nothing is charged." },
  grant: { title: "Grant a limit", done: "has its own limit", says: "This key gets its own limit instead of the rule's." },
};

const SPANS = [["3600000", "an hour"], ["86400000", "a day"], ["604800000", "a week"], ["", "no end"]];

/// What an exception does, with the limit of a grant.
function exceptionWords({ kind, limit, burst }) {
  const granted = limit ? ` of ${shown(limit)}${burst ? ` with burst ${count(burst)}` : ""}` : "";
  return `${EXCEPTIONS[kind]?.title ?? shown(kind)}${granted}`;
}

const exceptions = {
  /// After one was made or ended: whatever shows them is asked again.
  changed() {
    const view = page.view();
    return view === "keys" ? inspector.run() : view === "exceptions" ? exceptionList.load() : page.go();
  },

  async load() {
    if (!known.routes?.has("/v1/exceptions")) return;
    known.exceptions = (await api.get("/v1/exceptions")).exceptions;
  },

  /// For a bucket from `/v1/keys`: another alternative of its key is another bucket.
  of: ({ rule, key, by }) => (known.exceptions ?? []).filter((one) => one.key === key && (one.rule === rule || one.rule === "*") && (!one.by || !by || one.by === by)),

  /// The exception in force for a key, with a button to end it.
  list(bucket) {
    return exceptions.of(bucket).map((one) => {
      const until = one.until ? ["until ", moment(one.until)] : ["without an end"];
      const scope = one.rule === "*" ? " for every rule" : "";
      const by = one.by ? ` by ${shown(one.by)}` : "";
      return el("p", { class: "exception" }, el("b", {}, `${exceptionWords(one)}${scope}${by}`), el("span", {}, ...until),
        one.reason ? words(one.reason) : "",
        el("button", { type: "button", onclick: () => exceptions.lift(one) }, "End it"));
    });
  },

  /// `bucket` is from `/v1/keys`: its rule, the key, and which of the key's alternatives it is.
  buttons(bucket) {
    if (!known.exceptions) return [];
    return Object.entries(EXCEPTIONS).map(([kind, { title }]) =>
      el("button", { type: "button", onclick: () => exceptions.make(kind, bucket) }, `${title}…`));
  },

  make(kind, { rule, key, by, alternatives = [] }) {
    const { title, says, danger, done } = EXCEPTIONS[kind];
    const limit = kind === "grant" && [
      el("label", {}, "Limit ", el("input", { name: "limit", required: true, placeholder: "1,000/min", spellcheck: "false", autocomplete: "off" })),
      el("label", {}, "Burst ", el("input", { name: "burst", inputmode: "numeric", placeholder: "as the limit says", autocomplete: "off" })),
    ];
    const body = el("div", { class: "fields" },
      el("p", {}, says), el("p", {}, "Rule ", el("b", {}, shown(rule)), ", key ", foreign(key, "b")), limit || "",
      alternatives.length > 0 ? el("label", {}, "Key by ", el("select", { name: "by" }, alternatives.map((name) => el("option", { value: name, selected: name === by }, shown(name))))) : "",
      el("label", {}, "For ", el("select", { name: "for_ms" }, SPANS.map(([value, text]) => el("option", { value }, text)))),
      el("label", { class: "check" }, el("input", { type: "checkbox", name: "every" }), " for every rule that has this key"),
      el("label", {}, "Reason ", el("input", { name: "reason", maxlength: "200", autocomplete: "off" })));
    const act = async () => {
      const field = (name) => body.querySelector(`[name="${name}"]`)?.value.trim() || undefined;
      const number = (name) => (field(name) === undefined ? undefined : Number(field(name)));
      const every = body.querySelector("[name=every]").checked;
      await api.put("/v1/exceptions", { rule: every ? "*" : rule, key, by: field("by"), kind, limit: field("limit"), burst: number("burst"), for_ms: number("for_ms"), reason: field("reason") });
      announce(`${shown(key)} ${done}`);
      await exceptions.changed();
    };
    ask({ title, body, ok: title, danger, act });
  },

  /// Several keys of a rule at once, as a finding suggests.
  blockAll(rule, { keys, for_ms: forMs }) {
    const { title, says } = EXCEPTIONS.block;
    const body = el("div", { class: "fields" }, el("p", {}, says),
      el("p", {}, "Rule ", el("b", {}, shown(rule)), `, ${plural(keys.length, "key")}: `, keys.flatMap(({ key }, index) => [index > 0 ? ", " : "", foreign(key, "b")])),
      el("label", {}, "For ", el("select", { name: "for_ms" }, SPANS.map(([value, text]) => el("option", { value, selected: value === String(forMs) }, text)))),
      el("label", {}, "Reason ", el("input", { name: "reason", maxlength: "200", autocomplete: "off", value: "retries without waiting" })));
    const act = async () => {
      const field = (name) => body.querySelector(`[name="${name}"]`).value.trim() || undefined;
      const until = field("for_ms") && Number(field("for_ms"));
      for (const { key, by } of keys) {
        await api.put("/v1/exceptions", { rule, key, by: by ?? undefined, kind: "block", for_ms: until, reason: field("reason") });
      }
      announce(`${plural(keys.length, "key is", "keys are")} blocked`);
      await exceptions.changed();
    };
    ask({ title: keys.length === 1 ? "Block this key?" : `Block these ${keys.length} keys?`, body, ok: title, danger: true, act });
  },

  lift(one) {
    ask({
      title: "End this exception?",
      body: el("p", {}, "The rule applies to ", foreign(one.key, "b"), " as for every other key."),
      ok: "End it",
      act: async () => {
        await api.delete("/v1/exceptions", { rule: one.rule, key: one.key, by: one.by });
        announce("The exception was lifted");
        await exceptions.changed();
      },
    });
  },
};


/// The view of all exceptions in force, and of what people did to single keys.
const exceptionList = {
  async load() {
    try {
      await exceptions.load();
      const { actions, source, dropped } = await api.get("/v1/actions", { limit: 100 });
      const list = known.exceptions ?? [];
      say($("exceptions-note"), `${plural(list.length, "exception")} in force`);
      renew($("exceptions-table"), list, () => exceptionList.table(list));
      const missing = dropped > 0 ? `; ${plural(dropped, "action")} missing` : "";
      say($("actions-note"), `${actions.length === 100 ? "the latest 100" : plural(actions.length, "action")} ${source === "postgres" ? "from Postgres" : "since this process started"}${missing}`);
      renew($("actions-table"), actions, () => exceptionList.actions(actions));
      say($("exceptions-error"), "");
    } catch (error) {
      if (error instanceof Refused && error.status === 401) return signIn.show();
      say($("exceptions-error"), error.message);
    }
  },

  table(list) {
    if (list.length === 0) return el("p", { class: "nothing" }, "There are no exceptions. Look up a key under Keys to block it, let it pass, or grant it a limit.");
    return table("Exceptions in force", [
      { title: "Key", cell: (one) => el("span", {}, one.rule === "*" ? foreign(one.key) : keyLink(one.rule, one.key), one.by ? el("span", { class: "note" }, ` by ${shown(one.by)}`) : "") },
      { title: "Rule", cell: (one) => (one.rule === "*" ? "every rule" : foreign(one.rule)) },
      { title: "Does", cell: (one) => el("span", { class: `chip ${shown(one.kind)}` }, exceptionWords(one)) },
      { title: "Ends", cell: (one) => (one.until ? el("span", {}, moment(one.until)) : "never") },
      { title: "Reason", cell: (one) => (one.reason ? words(one.reason) : "–") },
      { title: "Made by", cell: (one) => el("span", {}, one.made_by ? foreign(one.made_by) : "–", " ", el("span", { class: "note" }, moment(one.since))) },
      { title: "Change", cell: (one) => el("button", { type: "button", "data-key": `${one.rule} ${one.key}`, onclick: () => exceptions.lift(one) }, "End it") },
    ], list);
  },

  actions(list) {
    if (list.length === 0) return el("p", { class: "nothing" }, "Nobody has changed a key yet.");
    const done = { block: "blocked", allow: "let pass", grant: "granted a limit", lift: "ended the exception of", reset: "reset" };
    return table("Actions", [
      { title: "When", cell: (one) => moment(one.at) },
      { title: "Who", cell: (one) => foreign(one.by) },
      { title: "Did", cell: (one) => `${done[one.action] ?? shown(one.action)}${one.limit ? ` of ${shown(one.limit)}` : ""}` },
      { title: "Key", cell: (one) => (one.rule === "*" ? foreign(one.key) : keyLink(one.rule, one.key)) },
      { title: "Rule", cell: (one) => (one.rule === "*" ? "every rule" : foreign(one.rule)) },
      { title: "Until", cell: (one) => (one.until ? moment(one.until) : "–") },
      { title: "Reason", cell: (one) => (one.reason ? words(one.reason) : "–") },
    ], list);
  },
};
