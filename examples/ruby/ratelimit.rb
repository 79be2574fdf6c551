require "ipaddr"
require "json"
require "net/http"

# Asks Tollkeeper before a request is served. Without an answer in time the request passes.
class RateLimit
  def initialize(app, service, timeout)
    @app = app
    @service = URI(service)
    @timeout = timeout
  end

  def call(env)
    path = URI.decode_www_form_component(env["PATH_INFO"].gsub("+", "%2B"))
    answer = ask("ip" => address(env["REMOTE_ADDR"]), "method" => env["REQUEST_METHOD"], "path" => path)
    limits = answer.fetch("headers", {})
    return denied(limits) unless answer.fetch("allowed", true)

    status, headers, body = @app.call(env)
    [status, headers.merge(limits), body]
  end

  private

  def ask(attributes)
    question = JSON.generate("attributes" => attributes, "headers" => true)
    reply = connection.post("/v1/check", question, "content-type" => "application/json")
    reply.is_a?(Net::HTTPOK) ? JSON.parse(reply.body) : {}
  rescue IOError, SystemCallError, Timeout::Error, Net::ProtocolError, JSON::ParserError
    Thread.current[:tollkeeper] = nil
    {}
  end

  # Each thread keeps one. A check is never sent twice: it may have been charged.
  def connection
    Thread.current[:tollkeeper] ||= Net::HTTP.new(@service.host, @service.port).tap do |http|
      http.open_timeout = http.read_timeout = http.write_timeout = @timeout
      http.max_retries = 0
      http.start
    end
  end

  def denied(limits)
    problem = "{\"title\":\"Quota exceeded\",\"status\":429}"
    [429, limits.merge("content-type" => "application/problem+json"), [problem]]
  end

  # The peer of the connection; of IPv6 the /64, all of which belongs to one subscriber.
  def address(peer)
    ip = IPAddr.new(peer).native
    ip.ipv6? ? "#{ip.mask(64)}/64" : ip.to_s
  end
end
