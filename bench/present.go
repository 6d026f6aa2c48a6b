package main

import (
	"context"
	"fmt"
	"math/rand/v2"
)

// renewalsByNumber measures what a renewal costs while ever more leases are there: all of them are renewed
// alike, in random order.
func renewalsByNumber(ctx context.Context, s *server, z size) ([]figure, error) {
	conns, err := dial(s.addr, rateConnections)
	if err != nil {
		return nil, err
	}
	defer conns.close()
	var all []figure
	for i, present := range z.present {
		granted := 0
		if i > 0 {
			granted = z.present[i-1]
		}
		if err := grantNumbered(ctx, conns, manyInFlight, granted, present); err != nil {
			return nil, err
		}
		pause(ctx, z.settle)
		shuffled := rand.New(rand.NewPCG(uint64(present), 1)).Perm(present)
		figures, err := renewingThose(ctx, s, z, shuffled, pipelineStreams, pipelineDepth, "")
		if err != nil {
			return nil, err
		}
		for _, f := range figures {
			f.name = fmt.Sprintf("with %s: %s", thousands(float64(present)), f.name)
			all = append(all, f)
		}
	}
	return all, nil
}
