module ratelimit.example

go 1.21
