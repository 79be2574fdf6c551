// Which view is shown, when data is fetched, and what is shown when the service does not answer.

const POLL_MS = 2_000;
const LONGEST_MS = 30_000;
const VIEWS = ["traffic", "violations", "keys", "exceptions", "rules"];

/// The login, which asks for a token.
const signIn = {
  show(problem = "") {
    if (token.get()) problem ||= "This token was refused. Use admin.token, or the token in the address that the service printed at its last start.";
    token.forget();
    known.insight = null;
    page.stop();
    page.reveal("sign-in");
    say($("token-error"), problem);
    $("token").focus();
  },

  start() {
    $("sign-in-form").addEventListener("submit", (event) => {
      event.preventDefault();
      const value = $("token").value.trim();
      // A text that cannot be in a header is not a token; fetch would only say that it failed.
      if (!/^[\x21-\x7e\xa0-\xff]+$/.test(value)) return say($("token-error"), "A token contains no spaces and no such characters.");
      token.set(value);
      $("token").value = "";
      page.go();
    });
    $("sign-out").addEventListener("click", () => {
      token.forget();
      signIn.show();
    });
  },
};

const page = {
  timer: null,
  failures: 0,
  updated: null,
  asking: false,

  view: () => place().view,

  /// Shows one part of the page and hides the others.
  reveal(id) {
    for (const part of ["sign-in", "trouble", ...VIEWS.map((view) => `view-${view}`)]) $(part).hidden = part !== id;
    for (const part of ["nav", ".facts"]) document.querySelector(part).hidden = !id.startsWith("view-");
    $("sign-out").hidden = !token.get();
    // A link cannot carry a token, and on this machine these need none.
    const local = ["127.0.0.1", "[::1]", "localhost"].includes(location.hostname);
    $("links").hidden = !local || !id.startsWith("view-");
  },

  route() {
    const view = page.view();
    for (const link of document.querySelectorAll("nav a")) {
      if (link.hash === `#${view}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    if (!$("sign-in").hidden) return;
    page.reveal(`view-${view}`);
    clearInterval(inspector.ticking);
    if (!known.insight) return;
    page.fill(place());
  },

  fill({ view, query }) {
    document.title = `${opening(view)} · Tollkeeper`;
    if (view === "traffic") {
      overview.update(known.insight);
      if (query.rule) ruleCard.open(query.rule);
    }
    if (view === "violations") violations.open(query);
    if (view === "exceptions") exceptionList.load();
    if (view === "rules") rules.load().then(() => rules.open(query));
    if (view === "keys") inspector.arrive(query);
  },

  stop() {
    clearTimeout(page.timer);
    page.timer = null;
  },

  /// Fetches now, and then repeatedly.
  async go() {
    page.stop();
    if (page.asking) return;
    page.asking = true;
    try {
      const insight = await api.get("/v1/insight");
      const first = known.insight === null;
      if (first) known.routes = new Set(Object.keys((await api.get("/openapi.json")).paths));
      known.insight = insight;
      page.answered(insight, first);
    } catch (error) {
      page.failed(error);
    } finally {
      page.asking = false;
    }
    const locked = !$("sign-in").hidden;
    const wait = Math.min(POLL_MS * 2 ** page.failures, LONGEST_MS);
    if (!locked && !document.hidden) page.timer = setTimeout(page.go, wait);
  },

  answered(insight, first) {
    if (page.failures > 0) announce("The service answers again");
    page.failures = 0;
    page.updated = Date.now();
    $("banner").hidden = true;
    document.body.classList.remove("stale");
    overview.store(insight.store);
    say($("version"), `Tollkeeper ${insight.version}`);
    say($("instance"), `instance ${shown(insight.instance)}`);
    say($("uptime"), `up ${span(insight.uptime_seconds * 1_000)}`);
    const names = insight.rules.map((rule) => rule.name);
    for (const form of ["violation-filter", "inspect"]) offerRules($(form).elements.rule, names);
    if (first || !$("trouble").hidden) {
      $("sign-in").hidden = true;
      page.route();
      return page.tick();
    }
    if (page.view() === "traffic") overview.update(insight);
    if (page.view() === "keys" && inspector.now?.read && !$("ask").open) inspector.run();
    if (page.view() === "exceptions" && !$("ask").open) exceptionList.load();
    page.tick();
  },

  failed(error) {
    if (error instanceof Refused && error.status === 401) return signIn.show();
    page.failures += 1;
    if (error instanceof Refused && error.status === 403) {
      say($("trouble-text"), error.message);
      return page.reveal("trouble");
    }
    const what = error instanceof Refused ? `The service answered ${error.status}: ${error.message}` : "The service cannot be reached";
    const text = known.insight ? `${what}. The numbers below are old.` : `${what}.`;
    overview.unanswered();
    if ($("banner").hidden) announce(text);
    $("banner").hidden = false;
    say($("banner-text"), text);
    document.body.classList.add("stale");
    page.tick();
  },

  tick() {
    if (page.updated === null) return;
    const seconds = Math.max(0, Math.round((Date.now() - page.updated) / 1_000));
    say($("updated"), seconds < 1 ? "updated now" : `updated ${span(seconds * 1_000)} ago`);
  },

  start() {
    addEventListener("hashchange", () => {
      if (token.take()) page.go();
      page.route();
      // A link to a rule has scrolled to it.
      if (place().view === "traffic" && place().query.rule) return;
      $("main").focus({ preventScroll: true });
      scrollTo(0, 0);
    });
    document.addEventListener("visibilitychange", () => (document.hidden ? page.stop() : page.go()));
    $("retry").addEventListener("click", () => page.go());
    setInterval(page.tick, 1_000);
    token.take();
    page.route();
    page.go();
  },
};

/// Light, dark, or the system's setting; remembered by this browser.
const theme = {
  names: ["system", "light", "dark"],

  apply(name) {
    document.documentElement.dataset.theme = name;
    $("theme-label").textContent = `Colours: ${name}. Change`;
    $("theme").title = `Colours: ${name}`;
  },

  start() {
    const stored = localStorage.getItem("tollkeeper-theme");
    theme.apply(theme.names.includes(stored) ? stored : "system");
    $("theme").addEventListener("click", () => {
      const next = theme.names[(theme.names.indexOf(document.documentElement.dataset.theme) + 1) % theme.names.length];
      localStorage.setItem("tollkeeper-theme", next);
      theme.apply(next);
    });
  },
};

theme.start();
signIn.start();
overview.start();
violations.start();
inspector.start();
rules.start();
page.start();
