-- Asks Tollkeeper about a request:
--   http-request lua.tollkeeper http://127.0.0.1:8080/v1/authorize    answers the client if the request is denied;
--                                                                   otherwise sets txn.tollkeeper_allowed
--   http-response lua.tollkeeper_limits                               adds the limit headers to the application's response

-- A decision takes less than a millisecond; anything slower means that Tollkeeper is unreachable.
local TIMEOUT_MS = 1000

-- The headers that rules can use; add yours. Do not forward all of them, and join repeated lines: HAProxy 2.6 crashes when
-- its HTTP client is given more than about a hundred headers, and any client can send that many.
local PASSED_ON = { "authorization", "cookie", "user-agent", "x-api-key", "x-user-id" }

-- The request headers that describe the original request.
local function question(txn)
    local headers = {
        ["x-forwarded-for"] = { txn.sf:src() },
        ["x-forwarded-method"] = { txn.sf:method() },
        ["x-forwarded-uri"] = { txn.sf:pathq() },
        ["x-forwarded-host"] = { txn.sf:req_hdr("host") },
    }
    local sent = txn.http:req_get_headers()
    for _, name in ipairs(PASSED_ON) do
        if sent[name] then
            -- HAProxy counts the lines from 0.
            local separator = name == "cookie" and "; " or ", "
            headers[name] = { table.concat(sent[name], separator, 0) }
        end
    end
    return headers
end

-- Matches every header style that `headers` in the rules file can select.
local function is_limit(name)
    return name:find("^ratelimit") or name:find("^x%-ratelimit") or name == "retry-after"
end

local function limits(response)
    local found = {}
    for name, values in pairs(response.headers) do
        if is_limit(name) then
            found[name] = values[0]
        end
    end
    return found
end

local function kind(response)
    local values = response.headers and response.headers["content-type"]
    return values and values[0]
end

-- True for Tollkeeper's own 429 or 503, false for the 503 that HAProxy generates when there is no answer.
local function is_refusal(response)
    return (response.status >= 400 and response.status < 500) or kind(response) == "application/problem+json"
end

local function refuse(txn, response)
    local reply = txn:reply({ status = response.status, body = response.body })
    for name, value in pairs(limits(response)) do
        reply:add_header(name, value)
    end
    reply:add_header("content-type", kind(response) or "text/plain")
    reply:add_header("cache-control", "no-store")
    txn:done(reply)
end

core.register_action("tollkeeper", { "http-req" }, function(txn, url)
    local response = core.httpclient():get({ url = url, headers = question(txn), timeout = TIMEOUT_MS })
    if is_refusal(response) then
        refuse(txn, response)
    elseif response.status == 200 then
        txn:set_var("txn.tollkeeper_allowed", true)
        txn:set_priv(limits(response))
    end
end, 1)

core.register_action("tollkeeper_limits", { "http-res" }, function(txn)
    for name, value in pairs(txn:get_priv() or {}) do
        txn.http:res_set_header(name, value)
    end
end)
