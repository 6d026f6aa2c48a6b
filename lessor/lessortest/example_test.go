package lessortest_test

import (
	"fmt"

	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/lessor/lessortest"
)

func ExampleFake() {
	var le lessor.Interface = lessortest.NewFake(1)
	if _, err := le.Grant(2, 60); err != nil {
		fmt.Println(err)
	}
	if err := le.Revoke(1); err != nil {
		fmt.Println(err)
	}
	fmt.Println(le.Lookup(1) != nil, le.Lookup(2) != nil)
	fmt.Println(le.Renew(99))
	// Output:
	// false true
	// 10 <nil>
}

func ExampleFakeTxnDelete() {
	deleter := func() lessor.TxnDelete { return lessortest.FakeTxnDelete{} }
	txn := deleter()
	fmt.Println(txn.DeleteRange([]byte("foo"), nil))
	txn.End()
	// Output: 0 0
}
