// A rule in a form. What the form has no field for stays as it is, as JSON.

const ALGORITHMS = ["token_bucket", "gcra", "leaky_bucket", "fixed_window", "sliding_window_log", "sliding_window_counter", "concurrency"];
const FIELDS = ["name", "description", "scope", "key", "limit", "burst", "algorithm", "hold", "mode", "on_store_failure", "active"];

const ruleForm = {
  open(rule) {
    const input = (name, title, more = {}) => el("label", {}, `${title} `,
      el("input", { name, value: rule?.[name] ?? "", spellcheck: "false", autocomplete: "off", ...more }));
    const select = (name, title, values, usual) => el("label", {}, `${title} `, el("select", { name },
      values.map((value) => el("option", { value, selected: (rule?.[name] ?? usual) === value }, value.replaceAll("_", " ")))));
    const body = el("div", { class: "fields two" },
      input("name", "Name", { required: true, readonly: rule !== null, placeholder: "free-user" }),
      input("scope", "Scope", { placeholder: "user" }),
      input("key", "One bucket for each", { required: true, placeholder: "{user_id}" }),
      select("algorithm", "Algorithm", ALGORITHMS, "token_bucket"),
      input("limit", "Limit", { required: true, placeholder: "10/s" }),
      input("burst", "Burst", { placeholder: "as the limit says" }),
      input("hold", "Hold, for concurrency", { placeholder: "10min" }),
      select("mode", "Mode", ["enforce", "shadow"], "enforce"),
      select("on_store_failure", "When the store is away", ["local", "open", "closed"], "local"),
      el("label", { class: "check" }, el("input", { type: "checkbox", name: "active", checked: rule?.active !== false }), " switched on"),
      el("label", { class: "whole" }, "Description ", el("input", { name: "description", value: rule?.description ?? "", autocomplete: "off" })),
      el("label", { class: "whole" }, "When, cost, lease, deny: as JSON ",
        el("textarea", { name: "more", rows: "4", spellcheck: "false", "data-fields": "when cost lease deny" }, ruleForm.more(rule))),
      rules.reasons());
    ask({
      title: rule ? `Edit ${shown(rule.name)}` : "New rule", body, ok: rule ? "Save" : "Create",
      act: async () => {
        const sent = ruleForm.read(body);
        const more = rules.change(body);
        if (rule) await api.put(`/v1/rules/${encodeURIComponent(rule.name)}`, sent, more);
        else await api.post("/v1/rules", sent, more);
        announce(`Rule ${shown(sent.name)} was saved`);
        await rules.load();
      },
    });
  },

  more(rule) {
    const rest = Object.entries(rule ?? {}).filter(([name]) => !FIELDS.includes(name) && name !== "quota");
    return JSON.stringify(rule ? Object.fromEntries(rest) : { when: {} }, null, 2);
  },

  read(body) {
    const sent = {};
    for (const name of FIELDS) {
      const field = body.querySelector(`[name="${name}"]`);
      if (field.type === "checkbox") sent[name] = field.checked;
      else if (field.value.trim() !== "") sent[name] = field.value.trim();
    }
    for (const name of ["limit", "burst"]) if (/^\d+$/.test(sent[name] ?? "")) sent[name] = Number(sent[name]);
    const text = body.querySelector("[name=more]").value.trim();
    if (text === "") return sent;
    let more;
    try {
      more = JSON.parse(text);
    } catch (error) {
      throw Object.assign(new Error(`this is not JSON: ${error.message}`), { field: "more" });
    }
    return { ...more, ...sent };
  },
};

