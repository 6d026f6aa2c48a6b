package drivertest

// What a keeper on a backend does.
var keeperTests = []test{}
