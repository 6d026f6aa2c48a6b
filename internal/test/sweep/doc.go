// Package sweep removes the guards of a package one by one and runs the tests without each, so that no guard stays that
// no test would miss.
//
// What it promises: TestEveryGuardIsTested fails if a guard can go without a failing test and testdata/survivors.txt does
// not name it with a reason. It fails too if that file names a guard that a test misses, or that does not exist. A guard is
//
//   - an if, or a case of a switch without a value, whose body ends with return, continue, break or goto: the mutant never
//     enters the body;
//   - an operand of && or ||: the mutant evaluates the operand and then leaves the result to the other operands.
//
// A body that ends with panic states a broken invariant, which no test can reach, and is no guard here.
//
// How it works. mutate_test.go finds the guards in the syntax and wraps each condition in a call, in a copy of the file
// that the go command takes by -overlay. One test binary so contains all mutants of a package, and a number in the
// environment chooses one; the product contains nothing of it. trace_test.go runs each test once, alone, and records for
// which guards the mutant's condition differs from the true one. No other test can notice that mutant. run_test.go then
// runs for each mutant only these tests, the fastest first, until one fails. A test that runs much longer than without the
// mutant has noticed it as well. The package's own tests come first, then those of packages that use it (subjects). A
// listed survivor is tried with the fast tests of its package only, unless -thorough is set.
//
// Results lie in files outside the repository, which the flag -results names. A sweep that was interrupted, or that
// follows a change of tests alone, takes from them what still holds.
//
// The sweep of a package takes minutes, so go test ./... only sweeps the toy package in testdata. CONTRIBUTING names the
// command for the others.
//
// The package contains only tests. It never changes a file of the repository.
package sweep
