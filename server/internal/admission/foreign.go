package admission

import (
	"net/http"
	"net/url"
)

// IsForeign reports whether the page of another site could have sent an HTTP request, through its reader's browser. Browsers
// say so by Sec-Fetch-Site, older ones by Origin.
func IsForeign(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		return false
	case "":
	default:
		return true
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	return err != nil || u.Host != r.Host
}
