# An application behind Tollkeeper: TOLLKEEPER=http://127.0.0.1:8080 TIMEOUT_MS=100 puma -b tcp://127.0.0.1:3000
require_relative "ratelimit"

use RateLimit, ENV.fetch("TOLLKEEPER"), ENV.fetch("TIMEOUT_MS").to_i / 1000.0
run ->(_env) { [200, { "content-type" => "text/plain" }, ["hello\n"]] }
