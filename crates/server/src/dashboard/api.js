// Calls the API, with the token if one is needed. The token is kept in this tab and sent only in a header.

class Refused extends Error {
  constructor(status, problem) {
    super(problem?.detail ?? `the service answered ${status} without a reason`);
    Object.assign(this, { status, field: problem?.field });
  }
}

/// The service did not answer.
class Unreachable extends Error {}

const TOKEN = "tollkeeper-admin-token";
const PATIENCE_MS = 10_000;

const token = {
  /// From the URL that the service printed. Browsers do not send what follows a `#`, and it is removed from the address bar.
  take() {
    const given = /^#token=([^&]+)$/.exec(location.hash)?.[1];
    if (!given) return false;
    globalThis.history.replaceState(null, "", location.pathname + location.search);
    token.set(decodeURIComponent(given));
    return true;
  },
  get: () => sessionStorage.getItem(TOKEN),
  set: (value) => sessionStorage.setItem(TOKEN, value),
  forget: () => sessionStorage.removeItem(TOKEN),
};

async function request(method, path, { query = {}, body, headers = {} } = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const search = given.length > 0 ? `?${new URLSearchParams(given)}` : "";
  const sent = { ...headers };
  if (token.get()) sent.authorization = `Bearer ${token.get()}`;
  if (body !== undefined) sent["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(path + search, {
      method,
      headers: sent,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
  } catch (error) {
    throw new Unreachable(error.name === "TimeoutError" ? `no answer within ${PATIENCE_MS / 1_000} s` : "it does not answer");
  }
  const answer = await response.json().catch(() => null);
  if (!response.ok) throw new Refused(response.status, answer);
  // A proxy in front may answer instead of the service.
  if (answer === null) throw new Unreachable("the answer is not from Tollkeeper");
  Object.defineProperty(answer, "tag", { value: response.headers.get("etag") });
  return answer;
}

const api = {
  get: (path, query) => request("GET", path, { query }),
  put: (path, body, more) => request("PUT", path, { body, ...more }),
  post: (path, body, more) => request("POST", path, { body, ...more }),
  delete: (path, query, more) => request("DELETE", path, { query, ...more }),
};

/// The view that the address names, and what it says about it: `#keys?rule=login&key=203.0.113.9`.
function place() {
  const [name, query = ""] = location.hash.slice(1).split("?");
  return { view: VIEWS.includes(name) ? name : "traffic", query: Object.fromEntries(new URLSearchParams(query)) };
}

/// The address of a view. Browsers do not send what follows a `#`, so keys are in no log.
function linkTo(view, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return `#${view}${given.length > 0 ? `?${new URLSearchParams(given)}` : ""}`;
}

/// Puts what is shown into the address, so that it can be copied; `as` a new entry of the browser's history or not.
function remember(view, query, as = "pushState") {
  const link = linkTo(view, query);
  if (location.hash !== link && place().view === view) globalThis.history[as](null, "", link);
}

/// The latest answers, for every view.
const known = { insight: null, rules: null, exceptions: null };

