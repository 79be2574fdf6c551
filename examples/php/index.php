<?php
// An application behind Tollkeeper: TOLLKEEPER=127.0.0.1:8080 TIMEOUT_MS=100 php -S 127.0.0.1:3000 index.php
require __DIR__ . '/ratelimit.php';

[$host, $port] = explode(':', getenv('TOLLKEEPER'));
rate_limit($host, (int) $port, getenv('TIMEOUT_MS') / 1000);
echo "hello\n";
