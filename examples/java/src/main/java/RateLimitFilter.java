import com.fasterxml.jackson.databind.*;
import jakarta.servlet.*;
import jakarta.servlet.http.*;
import java.io.IOException;
import java.net.*;
import java.net.http.*;
import java.net.http.HttpRequest.BodyPublishers;
import java.time.Duration;
import java.util.*;

/** Asks Tollkeeper before a request is served. Without an answer in time the request passes. */
public record RateLimitFilter(String service, Duration timeout) implements Filter {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final HttpClient CLIENT = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

  @Override
  public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain) throws IOException, ServletException {
    var in = (HttpServletRequest) request;
    var out = (HttpServletResponse) response;
    // The peer of the connection; of IPv6 the /64, all of which belongs to one subscriber.
    var peer = InetAddress.getByName(in.getRemoteAddr()).getAddress();
    var network = InetAddress.getByAddress(Arrays.copyOf(Arrays.copyOf(peer, Math.min(peer.length, 8)), peer.length));
    var ip = network.getHostAddress().replaceFirst("(:0)+$", "::") + (peer.length == 16 ? "/64" : "");
    var path = in.getServletPath() + Objects.requireNonNullElse(in.getPathInfo(), "");
    var attributes = Map.of("ip", ip, "method", in.getMethod(), "path", path);
    var body = JSON.writeValueAsBytes(Map.of("attributes", attributes, "headers", true));
    var question = HttpRequest.newBuilder(URI.create(service + "/v1/check")).timeout(timeout).POST(BodyPublishers.ofByteArray(body));
    var answer = JSON.missingNode();
    try {
      answer = JSON.readTree(CLIENT.send(question.build(), HttpResponse.BodyHandlers.ofByteArray()).body());
    } catch (IOException | InterruptedException failed) {
      if (failed instanceof InterruptedException) Thread.currentThread().interrupt();
    }
    answer.path("headers").fields().forEachRemaining(h -> out.setHeader(h.getKey(), h.getValue().asText()));
    if (answer.path("allowed").asBoolean(true)) {
      chain.doFilter(request, response);
    } else {
      out.setStatus(429);
      out.setContentType("application/problem+json");
      out.getOutputStream().print("{\"title\":\"Quota exceeded\",\"status\":429}");
    }
  }
}
