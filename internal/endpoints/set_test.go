package endpoints

import "testing"

func TestEndpointWithoutAPortGetsTheDefault(t *testing.T) {
	for endpoint, want := range map[string]string{
		"h": "h:2379", "h:1": "h:1", "[::1]": "[::1]:2379", "[::1]:5": "[::1]:5", "dns:///h": "dns:///h", "unix:/socket": "unix:/socket",
	} {
		if got := WithPort(endpoint); got != want {
			t.Errorf("%s: %s", endpoint, got)
		}
	}
}
