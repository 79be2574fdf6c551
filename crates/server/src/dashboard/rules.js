// The rules in force; they can be changed if they are in Postgres.

const rules = {
  editable: () => known.rules?.source === "postgres",

  async load() {
    try {
      known.rules = await api.get("/v1/rules");
      rules.show();
      if (rules.editable()) await history.load();
    } catch (error) {
      if (error instanceof Refused && error.status === 401) return signIn.show();
      $("rules-problem").hidden = false;
      say($("rules-problem"), `The rules cannot be shown: ${error.message}`);
    }
  },

  /// What the address asks for: the form of a rule, with numbers that a finding suggests.
  open({ edit, limit, burst }) {
    const rule = known.rules?.rules.find((one) => one.name === edit);
    if (!rule || $("ask").open) return;
    // Only once: a reload should not open it again.
    globalThis.history.replaceState(null, "", linkTo("rules"));
    const changed = { ...rule, ...(limit && { limit }), ...(burst && { burst: Number(burst) }) };
    if (rules.editable()) ruleForm.open(changed);
    else rules.explainFile(changed);
  },

  /// Rules of a file are changed there; this says how, and what it would do.
  explainFile(rule) {
    const lines = [`- name: ${rule.name}`, `  limit: ${rule.limit}`, ...(rule.burst ? [`  burst: ${rule.burst}`] : [])];
    const tried = el("p", { class: "preview", role: "status" });
    ask({
      title: `Change ${shown(rule.name)}`, ok: "Close", act: async () => {},
      body: el("div", { class: "fields" },
        el("p", {}, "The rules come from a file. Change these lines there; a running service reloads the file when it changes or on SIGHUP:"),
        el("pre", { class: "snippet", tabindex: "0" }, el("code", {}, lines.map(shown).join("\n"))), tried),
    });
    preview(rule, tried);
  },

  show() {
    const { rules: list, version, problem } = known.rules;
    const from = rules.editable() ? `from Postgres, version ${count(version ?? 0)}` : "from the configuration file, where they are changed";
    say($("rules-source"), `${plural(list.length, "rule")} ${from}`);
    $("rules-problem").hidden = !problem;
    say($("rules-problem"), problem ? `Newer rules are not in force: ${shown(problem)}` : "");
    $("rule-new").hidden = !rules.editable();
    $("history").hidden = !rules.editable();
    const mode = (rule) => (rule.active === false ? "off" : rule.mode ?? "enforce");
    const columns = [
      { title: "Rule", cell: (rule) => el("div", {}, el("b", {}, shown(rule.name)), rule.description ? el("p", { class: "note" }, shown(rule.description)) : "") },
      { title: "For each", cell: (rule) => el("code", {}, shown(rule.key)) },
      { title: "When", cell: (rule) => rules.when(rule) },
      { title: "Quota", cell: (rule) => quota(rule.quota) },
      { title: "Mode", cell: (rule) => el("span", { class: `chip ${mode(rule)}` }, shown(mode(rule))) },
      { title: "Store unreachable", cell: (rule) => shown(rule.on_store_failure ?? "local") },
      rules.editable() && { title: "Change", cell: (rule) => el("div", { class: "actions" },
        el("button", { type: "button", onclick: () => ruleForm.open(rule) }, "Edit", el("span", { class: "unseen" }, ` ${shown(rule.name)}`)),
        el("button", { type: "button", onclick: () => rules.remove(rule) }, "Remove", el("span", { class: "unseen" }, ` ${shown(rule.name)}`))) },
    ].filter(Boolean);
    $("rules-table").replaceChildren(list.length > 0 ? table("Rules in force", columns, list)
      : el("p", { class: "nothing" }, "There are no rules: every request passes."));
  },

  when(rule) {
    const pairs = Object.entries(rule.when ?? {});
    if (pairs.length === 0) return "always";
    return el("span", {}, pairs.map(([name, value]) => el("code", { class: "line" }, `${shown(name)}: ${whenWords(value)}`)));
  },

  /// What every change includes: the version that was seen, who makes it, and why.
  change(body) {
    const value = (name) => body.querySelector(`[name="${name}"]`).value.trim();
    return { query: { as: value("as"), message: value("message") }, headers: known.rules.tag ? { "if-match": known.rules.tag } : {} };
  },

  reasons: () => [
    el("label", {}, "Reason, for the history ", el("input", { name: "message", maxlength: "200", autocomplete: "off" })),
    el("label", {}, "Your name ", el("input", { name: "as", maxlength: "200", autocomplete: "off" })),
  ],

  remove(rule) {
    const body = el("div", { class: "fields" }, el("p", {}, "Requests are not limited by ", el("b", {}, shown(rule.name)), " any more. It stays in the history."), rules.reasons());
    ask({
      title: "Remove this rule?", body, ok: "Remove", danger: true,
      act: async () => {
        const { query, headers } = rules.change(body);
        await api.delete(`/v1/rules/${encodeURIComponent(rule.name)}`, query, { headers });
        announce(`Rule ${shown(rule.name)} was removed`);
        await rules.load();
      },
    });
  },

  start() {
    $("rule-new").addEventListener("click", () => ruleForm.open(null));
  },
};

