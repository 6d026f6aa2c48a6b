package mongodb

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestInspectionSendsOnlyReads(t *testing.T) {
	for _, c := range []struct {
		what     string
		hello    bson.D
		script   func(name string, body bson.Raw) bson.D
		schema   int
		cautions int
	}{
		{"an empty replica set", ofASet, nil, 0, 0},
		{"one with a namespace", ofASet, namespaceOf(byWriter), version, 0},
		{"a single server", ofNothing, namespaceOf(byWriter), version, 1},
	} {
		p := newPeer(t, c.hello, c.script)
		found, err := inspectDatabase(t.Context(), p.client().Database("app"), Config{})
		if err != nil || found.Schema != c.schema || found.Newest != version || len(found.Cautions) != c.cautions || found.RoundTrip <= 0 || len(found.Settings) == 0 {
			t.Errorf("%s: %+v, %v", c.what, found, err)
		}
		for _, name := range []string{"insert", "update", "delete", "findAndModify", "create", "createIndexes", "drop"} {
			if sent := p.commands(name); len(sent) > 0 {
				t.Errorf("%s: it sent %s", c.what, name)
			}
		}
	}
}

func TestInspectionReportsANamespaceThatCannotBeUsed(t *testing.T) {
	p := newPeer(t, ofASet, namespaceOf(byStore))
	if found, err := inspectDatabase(t.Context(), p.client().Database("app"), Config{}); err == nil {
		t.Errorf("the clock of the store decides there: %+v", found)
	}
}
