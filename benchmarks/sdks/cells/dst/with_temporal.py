from temporalio.client import ScheduleCalendarSpec, ScheduleRange, ScheduleSpec

spec = ScheduleSpec(
    calendars=[ScheduleCalendarSpec(hour=[ScheduleRange(2)], minute=[ScheduleRange(30)])],
    time_zone_name="Europe/Berlin",
)
print(spec.time_zone_name, spec.calendars[0].hour)
print("no: (read) the comments of its API: not fired where 02:30 does not exist, twice where it exists twice")
