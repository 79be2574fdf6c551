// Exceptions for single keys: block, allow or grant, where the service can make them.

const EXCEPTIONS = {
  block: { title: "Block", done: "is blocked", danger: true, says: "Every request of this key is denied, whatever it has left." },
  allow: { title: "Let pass", done: "always passes", says: "Every request of this key passes, and nothing is charged." },
  grant: { title: "Grant a limit", done: "has a limit of its own", says: "This key gets another limit than the rule's." },
};

const exceptions = {
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
      const limit = one.limit ? ` of ${shown(one.limit)}${one.burst ? ` burst ${count(one.burst)}` : ""}` : "";
      const scope = one.rule === "*" ? " for every rule" : "";
      const by = one.by ? ` by ${shown(one.by)}` : "";
      return el("p", { class: "exception" }, el("b", {}, `${EXCEPTIONS[one.kind]?.title ?? shown(one.kind)}${limit}${scope}${by}`), el("span", {}, ...until),
        one.reason ? foreign(one.reason) : "",
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
    const spans = [["3600000", "an hour"], ["86400000", "a day"], ["604800000", "a week"], ["", "no end"]];
    const body = el("div", { class: "fields" },
      el("p", {}, says), el("p", {}, "Rule ", el("b", {}, shown(rule)), ", key ", foreign(key, "b")), limit || "",
      alternatives.length > 0 ? el("label", {}, "Key by ", el("select", { name: "by" }, alternatives.map((name) => el("option", { value: name, selected: name === by }, shown(name))))) : "",
      el("label", {}, "For ", el("select", { name: "for_ms" }, spans.map(([value, text]) => el("option", { value }, text)))),
      el("label", { class: "check" }, el("input", { type: "checkbox", name: "every" }), " for every rule that has this key"),
      el("label", {}, "Reason ", el("input", { name: "reason", maxlength: "200", autocomplete: "off" })));
    const act = async () => {
      const field = (name) => body.querySelector(`[name="${name}"]`)?.value.trim() || undefined;
      const number = (name) => (field(name) === undefined ? undefined : Number(field(name)));
      const every = body.querySelector("[name=every]").checked;
      await api.put("/v1/exceptions", { rule: every ? "*" : rule, key, by: field("by"), kind, limit: field("limit"), burst: number("burst"), for_ms: number("for_ms"), reason: field("reason") });
      announce(`${shown(key)} ${done}`);
      await inspector.run();
    };
    ask({ title, body, ok: title, danger, act });
  },

  lift(one) {
    ask({
      title: "End this exception?",
      body: el("p", {}, "The rule decides about ", foreign(one.key, "b"), " as about everybody."),
      ok: "End it",
      act: async () => {
        await api.delete("/v1/exceptions", { rule: one.rule, key: one.key, by: one.by });
        announce("The exception is over");
        await inspector.run();
      },
    });
  },
};

