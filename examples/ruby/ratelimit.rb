require "ipaddr"
require "json"
require "net/http"

# Asks Tollkeeper before a request is served. Without an answer in time the request passes.
class RateLimit
  DENIED = [429, { "content-type" => "application/problem+json" }, ['{"title":"Quota exceeded","status":429}']].freeze

  def initialize(app, service, timeout)
    @app, @service, @timeout = app, URI(service), timeout
  end

  def call(env)
    path = URI.decode_www_form_component(env["PATH_INFO"].gsub("+", "%2B"))
    answer = ask("ip" => address(env["REMOTE_ADDR"]), "method" => env["REQUEST_METHOD"], "path" => path)
    status, headers, body = answer.fetch("allowed", true) ? @app.call(env) : DENIED
    [status, headers.merge(answer.fetch("headers", {})), body]
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

  # The peer of the connection; of IPv6 the /64, all of which belongs to one subscriber.
  def address(peer)
    ip = IPAddr.new(peer).native
    ip.ipv6? ? "#{ip.mask(64)}/64" : ip.to_s
  end
end
