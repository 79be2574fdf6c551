require "ipaddr"
require "json"
require "net/http"

# Asks Tollkeeper before a request is served. Without an answer in time the request passes.
class RateLimit
  DENIED = [429, { "content-type" => "application/problem+json" }, ['{"title":"Quota exceeded","status":429}']].freeze

  def initialize(app, service, timeout)
    @app, @service = app, URI(service)
    # A check is never sent twice: it may have been charged.
    @options = { open_timeout: timeout, read_timeout: timeout, write_timeout: timeout, max_retries: 0 }
  end

  def call(env)
    # The peer of the connection; of IPv6 the /64, all of which belongs to one subscriber.
    ip = IPAddr.new(env["REMOTE_ADDR"]).native
    path = URI.decode_www_form_component(env["PATH_INFO"].gsub("+", "%2B")).scrub
    attributes = { ip: ip.ipv6? ? "#{ip.mask(64)}/64" : ip.to_s, method: env["REQUEST_METHOD"], path: path }
    answer = ask(JSON.generate(attributes: attributes, headers: true))
    status, headers, body = answer.fetch("allowed", true) ? @app.call(env) : DENIED
    [status, headers.merge(answer.fetch("headers", {})), body]
  end

  private

  def ask(question)
    # Each thread keeps one.
    connection = Thread.current[:tollkeeper] ||= Net::HTTP.start(@service.host, @service.port, **@options)
    JSON.parse(connection.post("/v1/check", question, "content-type" => "application/json").body)
  rescue IOError, SocketError, SystemCallError, Timeout::Error, Net::ProtocolError, JSON::ParserError
    Thread.current[:tollkeeper] = nil
    {}
  end
end
