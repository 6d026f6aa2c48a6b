package doctor

import (
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

func TestInspectionOfADatabaseIsJudged(t *testing.T) {
	healthy := backend.Inspection{Server: "X 1", RoundTrip: time.Millisecond, Schema: 2, Newest: 2, Settings: []backend.Setting{{Name: "fsync", Value: "on"}}}
	for _, c := range judgeInspection(healthy) {
		expect(t, c.Name, c, OK)
	}
	faulty := healthy
	faulty.Settings = []backend.Setting{{Name: "fsync", Value: "off", Fix: "set it"}, {Name: "synchronous_commit", Value: "off", Fix: "set it", Accepted: true}}
	faulty.Cautions, faulty.HasClock, faulty.Clock = []string{"a single server"}, true, -time.Hour
	verdicts := make(map[string]Verdict)
	for _, c := range judgeInspection(faulty) {
		verdicts[c.Name] = c.Verdict
		expect(t, c.Name, c, c.Verdict)
	}
	for name, want := range map[string]Verdict{"fsync": Fail, "synchronous_commit": Warn, "caution": Warn, "clock of the store": Warn, "schema": OK} {
		if verdicts[name] != want {
			t.Errorf("%s: %s, want %s", name, verdicts[name], want)
		}
	}
}

func TestRoundTripSchemaAndClockAreJudgedByTheirBounds(t *testing.T) {
	expect(t, "fast", judgeRoundTrip(slowRoundTrip), OK)
	expect(t, "slow", judgeRoundTrip(slowRoundTrip+1), Warn)
	for version, want := range map[int]Verdict{0: OK, 1: Fail, 2: OK, 3: Fail} {
		expect(t, "schema", judgeSchema(version, 2), want)
	}
	const bound = time.Millisecond
	for ahead, want := range map[time.Duration]Verdict{0: OK, farClocks + bound: OK, -farClocks - bound: OK, farClocks + bound + 1: Warn, -farClocks - bound - 1: Warn} {
		expect(t, ahead.String(), judgeStoreClock(ahead, bound), want)
	}
}
