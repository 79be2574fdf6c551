<?php
/** Asks Tollkeeper about the request that is being served, and ends a denied one. Without an answer in time it passes. */
function rate_limit(string $host, int $port, float $timeout): void
{
    $path = rawurldecode(parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH) ?: '/');
    $attributes = ['ip' => address($_SERVER['REMOTE_ADDR']), 'method' => $_SERVER['REQUEST_METHOD'], 'path' => $path];
    $question = json_encode(['attributes' => $attributes, 'headers' => true], JSON_INVALID_UTF8_SUBSTITUTE);
    $answer = ask($host, $port, $timeout, $question) ?? ['allowed' => true];
    foreach ($answer['headers'] ?? [] as $name => $value) {
        header("$name: $value");
    }
    if (!$answer['allowed']) {
        http_response_code(429);
        header('content-type: application/problem+json');
        exit('{"title":"Quota exceeded","status":429}');
    }
}

/** A persistent connection: each worker process keeps its own. PHP replaces one that was closed meanwhile. */
function ask(string $host, int $port, float $timeout, string $question): ?array
{
    $socket = @pfsockopen($host, $port, timeout: $timeout);
    if (!$socket) {
        return null;
    }
    stream_set_timeout($socket, 0, (int) ($timeout * 1e6));
    $length = strlen($question);
    @fwrite($socket, "POST /v1/check HTTP/1.1\r\nHost: $host:$port\r\nContent-Length: $length\r\n\r\n$question");
    [$status, $length] = [(string) @fgets($socket), 0];
    while (($line = @fgets($socket)) && $line !== "\r\n") {
        $length = preg_match('/^content-length: *(\d+)/i', $line, $found) ? (int) $found[1] : $length;
    }
    $body = $length ? (string) stream_get_contents($socket, $length) : '';
    if (strlen($body) === $length && str_starts_with($status, 'HTTP/1.1 200')) {
        return json_decode($body, true);
    }
    fclose($socket); // What is late would be taken for the answer to the next question.
    return null;
}

/** The peer of the connection; of IPv6 the /64, all of which belongs to one subscriber. */
function address(string $peer): string
{
    $bytes = inet_pton(preg_replace('/^::ffff:(?=[\d.]+$)|%.*$/i', '', $peer));
    return strlen($bytes) === 4 ? inet_ntop($bytes) : inet_ntop(str_pad(substr($bytes, 0, 8), 16, "\0")) . '/64';
}
