package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// RateLimit asks Tollkeeper before next serves a request. Without an answer in time the request passes.
func RateLimit(service string, timeout time.Duration, next http.Handler) http.Handler {
	client := &http.Client{Timeout: timeout, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The peer of the connection; of IPv6 the /64, all of which belongs to one subscriber.
		peer, _ := netip.ParseAddrPort(r.RemoteAddr)
		ip := peer.Addr().Unmap().WithZone("")
		network, _ := ip.Prefix(min(64, ip.BitLen()))
		address := strings.TrimSuffix(network.String(), "/32")
		attributes := map[string]string{"ip": address, "method": r.Method, "path": r.URL.Path}
		question, _ := json.Marshal(map[string]any{"attributes": attributes, "headers": true})
		answer := struct {
			Allowed bool
			Headers map[string]string
		}{Allowed: true}
		if reply, err := client.Post(service+"/v1/check", "application/json", bytes.NewReader(question)); err == nil {
			_ = json.NewDecoder(reply.Body).Decode(&answer)
			_ = reply.Body.Close()
		}
		for name, value := range answer.Headers {
			w.Header().Set(name, value)
		}
		if answer.Allowed {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("content-type", "application/problem+json")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write([]byte(`{"title":"Quota exceeded","status":429}`))
	})
}
