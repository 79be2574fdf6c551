-- Asks Tollkeeper about a request:
--   http-request lua.tollkeeper http://127.0.0.1:8080/v1/authorize    answers the client if it is refused, and sets
--                                                                   txn.tollkeeper_allowed if it is not
--   http-response lua.tollkeeper_limits                               puts the limit headers on the application's answer

-- A decision takes less than a millisecond; who waits longer waits for a server that is away.
local TIMEOUT_MS = 1000

-- The headers that rules can use; add yours. Not all of them, and several lines as one: HAProxy 2.6 crashes when its
-- client is given more than about a hundred, and who sends them is the client's choice.
local PASSED_ON = { "authorization", "cookie", "user-agent", "x-api-key", "x-user-id" }

-- Who asks for what.
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

-- Whatever the convention is that `headers` in the rules file chose.
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

-- Tollkeeper's own word, be it 429 or 503, and not the 503 that HAProxy writes when there is no answer.
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
