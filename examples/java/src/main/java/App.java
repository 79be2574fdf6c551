import jakarta.servlet.DispatcherType;
import jakarta.servlet.http.*;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.EnumSet;
import org.eclipse.jetty.ee10.servlet.*;
import org.eclipse.jetty.server.Server;

/** An application behind Tollkeeper. */
public class App {
  public static void main(String[] args) throws Exception {
    var handler = new ServletContextHandler();
    var timeout = Duration.ofMillis(Long.parseLong(System.getenv("TIMEOUT_MS")));
    var filter = new FilterHolder(new RateLimitFilter(System.getenv("TOLLKEEPER"), timeout));
    handler.addFilter(filter, "/*", EnumSet.of(DispatcherType.REQUEST));
    handler.addServlet(new ServletHolder(new Hello()), "/*");
    var server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(System.getenv("PORT"))));
    server.setHandler(handler);
    server.start();
  }

  public static class Hello extends HttpServlet {
    @Override
    protected void service(HttpServletRequest request, HttpServletResponse response) throws IOException {
      response.getOutputStream().println("hello");
    }
  }
}
