import com.fasterxml.jackson.databind.*;
import jakarta.servlet.*;
import jakarta.servlet.http.*;
import java.io.IOException;
import java.net.*;
import java.net.http.*;
import java.time.Duration;
import java.util.*;

/** Asks Tollkeeper before a request is served. Without an answer in time the request passes. */
public record RateLimitFilter(String service, Duration timeout) implements Filter {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final HttpClient CLIENT = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

  @Override
  public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain)
      throws IOException, ServletException {
    var in = (HttpServletRequest) request;
    var out = (HttpServletResponse) response;
    var path = in.getServletPath() + Objects.requireNonNullElse(in.getPathInfo(), "");
    var answer = ask(Map.of("ip", address(in.getRemoteAddr()), "method", in.getMethod(), "path", path));
    answer.path("headers").fields().forEachRemaining(h -> out.setHeader(h.getKey(), h.getValue().asText()));
    if (answer.path("allowed").asBoolean(true)) {
      chain.doFilter(request, response);
      return;
    }
    out.setStatus(429);
    out.setContentType("application/problem+json");
    out.getOutputStream().print("{\"title\":\"Quota exceeded\",\"status\":429}");
  }

  private JsonNode ask(Map<String, String> attributes) throws IOException {
    var question = JSON.writeValueAsBytes(Map.of("attributes", attributes, "headers", true));
    var body = HttpRequest.BodyPublishers.ofByteArray(question);
    var request = HttpRequest.newBuilder(URI.create(service + "/v1/check")).timeout(timeout).POST(body).build();
    try {
      var reply = CLIENT.send(request, HttpResponse.BodyHandlers.ofByteArray());
      if (reply.statusCode() == 200) return JSON.readTree(reply.body());
    } catch (IOException unreachable) {
      // The request passes.
    } catch (InterruptedException stopping) {
      Thread.currentThread().interrupt();
    }
    return JSON.missingNode();
  }

  /** The peer of the connection; of IPv6 the /64, all of which belongs to one subscriber. */
  private static String address(String peer) throws UnknownHostException {
    var bytes = InetAddress.getByName(peer).getAddress();
    if (bytes.length == 4) return InetAddress.getByAddress(bytes).getHostAddress();
    Arrays.fill(bytes, 8, 16, (byte) 0);
    return InetAddress.getByAddress(bytes).getHostAddress().replaceFirst("(:0)+$", "::") + "/64";
  }
}
