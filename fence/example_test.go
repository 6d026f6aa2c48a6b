package fence_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasekeeper/leasekeeper/fence"
)

func ExampleGuard_Do() {
	ctx := context.Background()
	guard := fence.NewGuard(fence.Config{})
	write := func(token fence.Token, text string) {
		err := guard.Do(ctx, "report.txt", token, func(ctx context.Context) error {
			fmt.Println("wrote", text)
			return nil
		})
		var stale *fence.StaleError
		if errors.As(err, &stale) {
			fmt.Println("refused", text, "because of token", stale.Highest)
		}
	}
	write(33, "Monday's figures")
	write(34, "Tuesday's figures")      // the lease has a new holder
	write(33, "Monday's figures again") // and its previous holder wakes up
	// Output:
	// wrote Monday's figures
	// wrote Tuesday's figures
	// refused Monday's figures again because of token 34
}

func ExampleGuard_Check() {
	ctx := context.Background()
	guard := fence.NewGuard(fence.Config{})
	fmt.Println(guard.Check(ctx, "shard-7", 12))
	fmt.Println(guard.Check(ctx, "shard-7", 13))
	fmt.Println(guard.Check(ctx, "shard-7", 12))
	// Output:
	// <nil>
	// <nil>
	// stale fencing token: token 12 reached "shard-7" after token 13: the name has a new holder, so stop, and do not repeat this write
}

func ExampleGuard_Advance() {
	ctx := context.Background()
	guard := fence.NewGuard(fence.Config{})
	// A new holder advances the mark first, and then reads: no previous holder can change what it has read.
	if err := guard.Advance(ctx, "shard-7", 13); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(errors.Is(guard.Check(ctx, "shard-7", 12), fence.ErrStale))
	// Output: true
}

// brokenDisk is a store of marks that refuses every write.
type brokenDisk struct{}

func (brokenDisk) Raise(context.Context, string, fence.Token) (fence.Token, error) {
	return 0, errors.New("no space left on device")
}

func ExampleMarks() {
	guard := fence.NewGuard(fence.Config{Marks: brokenDisk{}})
	err := guard.Do(context.Background(), "report.txt", 33, func(ctx context.Context) error {
		fmt.Println("this is not reached")
		return nil
	})
	fmt.Println(errors.Is(err, fence.ErrUnsaved))
	fmt.Println(err)
	// Output:
	// true
	// mark not saved: token 33 was not admitted to "report.txt", and nothing was written; repeat it with the same token while the lease is held: no space left on device
}

func ExampleParseToken() {
	token, err := fence.ParseToken("34")
	fmt.Println(token, err)
	_, err = fence.ParseToken("034")
	fmt.Println(errors.Is(err, fence.ErrInvalid))
	// Output:
	// 34 <nil>
	// true
}
