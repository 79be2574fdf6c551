<?php
/** Asks Tollkeeper about the request that is being served, and ends a denied one. Without an answer in time it passes. */
function rate_limit(string $host, int $port, float $timeout): void
{
    // The peer of the connection; of IPv6 the /64, all of which belongs to one subscriber.
    $peer = inet_pton(preg_replace('/^::ffff:(?=[\d.]+$)|%.*$/i', '', $_SERVER['REMOTE_ADDR']));
    $ip = strlen($peer) === 4 ? inet_ntop($peer) : inet_ntop(str_pad(substr($peer, 0, 8), 16, "\0")) . '/64';
    $path = rawurldecode(parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH) ?: '/');
    $attributes = ['ip' => $ip, 'method' => $_SERVER['REQUEST_METHOD'], 'path' => $path];
    $question = json_encode(['attributes' => $attributes, 'headers' => true], JSON_INVALID_UTF8_SUBSTITUTE);
    $answer = null;
    // Each worker process keeps its connection. PHP replaces one that was closed meanwhile.
    if ($socket = @pfsockopen($host, $port, timeout: $timeout)) {
        stream_set_timeout($socket, 0, (int) ($timeout * 1e6));
        $length = strlen($question);
        @fwrite($socket, "POST /v1/check HTTP/1.1\r\nHost: $host:$port\r\nContent-Length: $length\r\n\r\n$question");
        $head = (string) @stream_get_line($socket, 8192, "\r\n\r\n");
        if (preg_match('~^HTTP/1\.1 200 .*\ncontent-length: *(\d+)~is', $head, $found)) {
            $answer = json_decode((string) stream_get_contents($socket, (int) $found[1]), true);
        }
        if ($answer === null) {
            fclose($socket); // What is late would be taken for the answer to the next question.
        }
    }
    foreach ($answer['headers'] ?? [] as $name => $value) {
        header("$name: $value");
    }
    if (!($answer['allowed'] ?? true)) {
        http_response_code(429);
        header('content-type: application/problem+json');
        exit('{"title":"Quota exceeded","status":429}');
    }
}
