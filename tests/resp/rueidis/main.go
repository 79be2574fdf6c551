// rueidis against a running service: client ADDRESS PASSWORD. With its default options, so with client-side caching.
package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/redis/rueidis"
)

func main() {
	address, password := os.Args[1], os.Args[2]
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}, Password: password})
	must(err)
	defer client.Close()
	ctx := context.Background()

	throttle := func(key string, numbers ...string) rueidis.Completed {
		return client.B().Arbitrary("CL.THROTTLE").Keys(key).Args(numbers...).Build()
	}
	answer, err := client.Do(ctx, throttle("rueidis", "15", "30", "60")).AsIntSlice()
	must(err)
	equal(answer, []int64{0, 16, 15, -1, 2})

	// A pipeline, in order.
	commands := make([]rueidis.Completed, 100)
	for i := range commands {
		commands[i] = throttle("rueidis:pipeline", "99", "1", "3600")
	}
	for i, result := range client.DoMulti(ctx, commands...) {
		answer, err := result.AsIntSlice()
		must(err)
		equal(answer[:3], []int64{0, 100, int64(99 - i)})
	}

	// A transaction on a connection of its own: one wrong command, and nothing is charged.
	err = client.Dedicated(func(c rueidis.DedicatedClient) error {
		results := c.DoMulti(ctx,
			c.B().Multi().Build(),
			throttle("rueidis:transaction", "1", "1", "3600"),
			c.B().Arbitrary("CL.THROTTLE").Keys("rueidis:transaction").Build(),
			c.B().Exec().Build(),
		)
		if err := results[3].Error(); err == nil || !strings.HasPrefix(err.Error(), "EXECABORT") {
			return fmt.Errorf("EXEC: %v", err)
		}
		answer, err := c.Do(ctx, throttle("rueidis:transaction", "1", "1", "3600")).AsIntSlice()
		equal(answer[:3], []int64{0, 2, 1})
		return err
	})
	must(err)

	// Another database is refused in words.
	_, err = rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}, Password: password, SelectDB: 3})
	if err == nil || !strings.Contains(err.Error(), "only database 0") {
		panic(fmt.Sprint("SELECT 3: ", err))
	}
	fmt.Println("rueidis: fine")
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func equal(found, expected []int64) {
	if !reflect.DeepEqual(found, expected) {
		panic(fmt.Sprint(found, " is not ", expected))
	}
}
