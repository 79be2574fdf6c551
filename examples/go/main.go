// An application behind Tollkeeper: TOLLKEEPER=http://127.0.0.1:8080 TIMEOUT_MS=100 PORT=3000 go run .
package main

import (
	"log"
	"net/http"
	"os"
	"strconv"
	"time"
)

func main() {
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("hello\n"))
	})
	ms, _ := strconv.Atoi(os.Getenv("TIMEOUT_MS"))
	limited := RateLimit(os.Getenv("TOLLKEEPER"), time.Duration(ms)*time.Millisecond, hello)
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), limited))
}
