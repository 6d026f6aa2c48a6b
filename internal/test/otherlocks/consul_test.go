//go:build unix

package otherlocks

import "testing"

// There is no Consul to run the programs with. The page says so.
func TestProgramsOfTheConsulPageCompile(t *testing.T) {
	buildPage(t, "consul.md", 2)
}
